//! Python scripts with Unsloth, and with TRL alone.

use expect_test::expect;

use crate::changes;

const UNSLOTH: &str = "from unsloth import FastLanguageModel\nmodel, tok = FastLanguageModel.from_pretrained(\"a/b-8b\", max_seq_length=1024)\nmodel = FastLanguageModel.get_peft_model(model, r=8)\n@\n";

#[test]
fn calls_of_unsloth_become_what_they_mean() {
    expect![[r#"
        args = SFTConfig(per_device_train_batch_size=4, max_steps=10, optim="adamw_8bit")
            batch.micro: 4
            length.steps: 10
            optimizer: "adam-w8bit"
            length.epochs_permille: not stated
        args = TrainingArguments(gradient_accumulation_steps=2); t = SFTTrainer(args=args, packing=True)
            batch.accumulation: 2
            batch.packing: true
        model = FastLanguageModel.get_peft_model(model, r=64, target_modules=["q_proj", "lm_head", "embed_tokens"], use_gradient_checkpointing=True)
            method.lora.rank: 64
            method.lora.targets: ["q_proj"]
            method.lora.whole: ["lm_head","embed_tokens"]
            offload.activations: "gpu"
        model = FastLanguageModel.get_peft_model(model, r=16, use_gradient_checkpointing=False, lora_dropout=0.1)
            method.lora.dropout: true
            method.lora.rank: 16
            offload.activations: "gpu"
            recompute: "none"
        model = FastLanguageModel.get_peft_model(model, r=ranks[0])
            method.lora.rank: 16
            warning[not-literal]: `train.py`, line 4: `lora_r` is `ranks [ 0 ]`, which only running it would tell: taken as not stated
        args = GRPOConfig(num_generations=4, max_prompt_length=256, max_completion_length=512)
            rollout.answer_tokens_max: 512
            rollout.answers: 4
            rollout.asynchronous: false
            rollout.passes: 1
            rollout.prompt_tokens: 256
            rollout.reference: true
            task: "grpo"
        args = DPOConfig(beta=0.1); t = DPOTrainer(args=args)
            task: "dpo"
        args = SFTConfig(bf16=is_bf16_supported())
    "#]].assert_eq(&changes(
        "train.py",
        UNSLOTH,
        &[
            "args = SFTConfig(per_device_train_batch_size=4, max_steps=10, optim=\"adamw_8bit\")",
            "args = TrainingArguments(gradient_accumulation_steps=2)\nt = SFTTrainer(args=args, packing=True)",
            "model = FastLanguageModel.get_peft_model(model, r=64, target_modules=[\"q_proj\", \"lm_head\", \"embed_tokens\"], use_gradient_checkpointing=True)",
            "model = FastLanguageModel.get_peft_model(model, r=16, use_gradient_checkpointing=False, lora_dropout=0.1)",
            "model = FastLanguageModel.get_peft_model(model, r=ranks[0])",
            "args = GRPOConfig(num_generations=4, max_prompt_length=256, max_completion_length=512)",
            "args = DPOConfig(beta=0.1)\nt = DPOTrainer(args=args)",
            "args = SFTConfig(bf16=is_bf16_supported())",
        ],
    ));
    expect![[r#"
        full_finetuning=True
        full_finetuning=True, load_in_4bit=True
            error[AP0705]: `train.py`, line 2: `load_in_4bit` is `true`: expected False: quantized weights are not trained, only adapters on them (`get_peft_model`) | help: correct `load_in_4bit`, or leave it out to have the tool's default
        load_in_4bit=True, load_in_8bit=True
            error[AP0706]: `train.py`, line 2: `load_in_8bit: true` does not go together with `load_in_4bit: true` (line 2) | why: frozen weights are stored in one way | help: take out `load_in_8bit: true` or `load_in_4bit: true`
        max_seq_length=-1
            error[AP0705]: `train.py`, line 2: `max_seq_length` is `-1`: expected a whole number of at least 1 | help: correct `max_seq_length`, or leave it out to have the tool's default
    "#]].assert_eq(&changes(
        "train.py",
        "import unsloth\nm = FastLanguageModel.from_pretrained(model_name=\"a/b-8b\", @)\n",
        &[
            "full_finetuning=True",
            "full_finetuning=True, load_in_4bit=True",
            "load_in_4bit=True, load_in_8bit=True",
            "max_seq_length=-1",
        ],
    ));
}

#[test]
fn scripts_of_trl_are_read_by_the_same_calls() {
    let base = "from trl import SFTConfig\nfrom transformers import AutoModelForCausalLM\nm = AutoModelForCausalLM.from_pretrained(\"a/b-8b\", torch_dtype=torch.bfloat16)\n@\n";
    expect![[r#"
        c = LoraConfig(r=8, target_modules="all-linear"); a = SFTConfig(max_length=512, bf16=True)
            batch.sequence_length: 512
            method.lora.dora: false
            method.lora.dropout: true
            method.lora.rank: 8
            method.lora.targets: ["q_proj","k_proj","v_proj","o_proj","gate_proj","up_proj","down_proj"]
            method.lora.whole: []
            method: not stated
        q = BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_use_double_quant=True); c = LoraConfig(r=8)
            method.lora.dora: false
            method.lora.dropout: true
            method.lora.rank: 8
            method.lora.targets: ["q_proj","v_proj"]
            method.lora.whole: []
            quantization: "nf4-double"
            method: not stated
        a = DPOConfig(per_device_train_batch_size=1, gradient_checkpointing=False)
            batch.micro: 1
            recompute: "none"
            task: "dpo"
        a = SFTConfig(per_device_train_batch_size=n)
            warning[not-literal]: `train.py`, line 4: `per_device_train_batch_size` is `n`, which only running it would tell: taken as not stated
    "#]].assert_eq(&changes(
        "train.py",
        base,
        &[
            "c = LoraConfig(r=8, target_modules=\"all-linear\")\na = SFTConfig(max_length=512, bf16=True)",
            "q = BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_use_double_quant=True)\nc = LoraConfig(r=8)",
            "a = DPOConfig(per_device_train_batch_size=1, gradient_checkpointing=False)",
            "a = SFTConfig(per_device_train_batch_size=n)",
        ],
    ));
}
