//! The sizes of a decoder-only language model, as its `config.json` gives them. Counts parameters; estimates nothing.

use serde::{Deserialize, Serialize};

/// Everything that memory, compute and communication follow from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModelShape {
    /// What people call it.
    pub name: String,
    /// Width of the residual stream.
    pub hidden: u64,
    /// Transformer blocks.
    pub layers: u64,
    /// How a block attends.
    pub attention: Attention,
    /// Width of a dense feed-forward block.
    pub ffn: u64,
    /// Matrices of a feed-forward block.
    pub mlp: Mlp,
    /// Rows of the embedding.
    pub vocab: u64,
    /// Whether the output head is the embedding.
    pub tied: bool,
    /// Which linear layers have a bias.
    pub biases: Biases,
    /// Whether the output head has a bias.
    #[serde(default)]
    pub head_bias: bool,
    /// Normalization over the residual stream.
    pub norm: Norm,
    /// Norms in a block: 2, 4 with norms after attention and feed-forward, 1 where both run in parallel.
    pub norms_per_layer: u64,
    /// Learned positions; 0 with rotary ones.
    #[serde(default)]
    pub learned_positions: u64,
    /// Experts in place of the dense feed-forward block.
    #[serde(default)]
    pub experts: Option<Experts>,
    /// Layers that attend to the last tokens only.
    #[serde(default)]
    pub window: Option<Window>,
    /// Longest sequence that it was made for; 0 where it is not known.
    #[serde(default)]
    pub max_positions: u64,
}

/// How a block attends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Attention {
    /// Queries in groups over fewer keys and values: multi-head where there are as many, multi-query with one.
    Grouped {
        /// Query heads.
        heads: u64,
        /// Key and value heads.
        kv_heads: u64,
        /// Width of a head.
        head_dim: u64,
        /// Norms on queries and keys.
        qk_norm: QkNorm,
        /// One learned logit a head that takes attention away from all tokens.
        sinks: bool,
    },
    /// Multi-head latent attention (`DeepSeek-V2`): keys and values are made from one compressed vector.
    Latent {
        /// Query heads.
        heads: u64,
        /// Width of the compressed queries; 0 where queries are made directly.
        q_rank: u64,
        /// Width of the compressed keys and values.
        kv_rank: u64,
        /// Width of a head's part without positions.
        nope: u64,
        /// Width of a head's rotary part.
        rope: u64,
        /// Width of a value head.
        value: u64,
    },
}

/// Norms on queries and keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum QkNorm {
    /// None.
    #[default]
    None,
    /// One weight for all heads, over the width of a head.
    Head,
    /// Over the width of all heads together.
    Full,
}

/// Matrices of a feed-forward block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mlp {
    /// Gate, up and down (`SwiGLU`, `GeGLU`).
    #[default]
    Gated,
    /// Up and down.
    Plain,
}

impl Mlp {
    /// Matrices of one block.
    #[must_use]
    pub const fn matrices(self) -> u64 {
        match self {
            Self::Gated => 3,
            Self::Plain => 2,
        }
    }
}

/// Which linear layers of a block have a bias.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Biases {
    /// None.
    #[default]
    None,
    /// Queries, keys and values.
    Qkv,
    /// These and attention's output.
    Attention,
    /// All of them, experts included.
    All,
}

/// Normalization over the residual stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Norm {
    /// One weight a channel.
    #[default]
    Rms,
    /// Weight and bias a channel.
    Layer,
    /// Nothing learned.
    Bare,
}

impl Norm {
    /// Parameters of a norm over `width` channels.
    #[must_use]
    pub const fn parameters(self, width: u64) -> u64 {
        match self {
            Self::Rms => width,
            Self::Layer => 2 * width,
            Self::Bare => 0,
        }
    }
}

/// Experts in place of the dense feed-forward block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Experts {
    /// How many there are in a layer.
    pub count: u64,
    /// How many a token goes through.
    pub top_k: u64,
    /// Width of one.
    pub ffn: u64,
    /// Width of the experts that every token goes through, together.
    pub shared_ffn: u64,
    /// Leading layers without experts.
    pub dense_layers: u64,
    /// Whether the router has a bias for each expert.
    #[serde(default)]
    pub router_bias: bool,
}

/// Layers that attend to the last tokens only.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Window {
    /// How many tokens back.
    pub tokens: u64,
    /// One layer in so many attends to everything; 0 for none.
    pub full_every: u64,
}

/// What a linear layer is called where adapters name their targets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Linear {
    /// Queries.
    QProj,
    /// Keys.
    KProj,
    /// Values.
    VProj,
    /// Attention's output.
    OProj,
    /// The gate of a feed-forward block.
    GateProj,
    /// Into a feed-forward block.
    UpProj,
    /// Out of a feed-forward block.
    DownProj,
    /// The output head.
    LmHead,
    /// The embedding.
    EmbedTokens,
}

impl Linear {
    /// The linear layers inside every block.
    pub const BLOCK: [Self; 7] = [
        Self::QProj,
        Self::KProj,
        Self::VProj,
        Self::OProj,
        Self::GateProj,
        Self::UpProj,
        Self::DownProj,
    ];

    /// The name as PEFT has it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::QProj => "q_proj",
            Self::KProj => "k_proj",
            Self::VProj => "v_proj",
            Self::OProj => "o_proj",
            Self::GateProj => "gate_proj",
            Self::UpProj => "up_proj",
            Self::DownProj => "down_proj",
            Self::LmHead => "lm_head",
            Self::EmbedTokens => "embed_tokens",
        }
    }
}

impl ModelShape {
    /// Every parameter of the language model: no vision tower, no multi-token-prediction layer.
    #[must_use]
    pub fn parameters(&self) -> u64 {
        self.embedding()
            + self.head()
            + self.norm.parameters(self.hidden)
            + self.dense_layers() * self.layer(LayerKind::Dense)
            + self.expert_layers() * self.layer(LayerKind::Experts)
    }

    /// Parameters that a token goes through: experts that it is not sent to left out.
    #[must_use]
    pub fn active_parameters(&self) -> u64 {
        let idle = self.experts.map_or(0, |experts| {
            (experts.count - experts.top_k) * self.feed_forward(experts.ffn)
        });
        self.parameters() - self.expert_layers() * idle
    }

    /// Embedding and learned positions.
    #[must_use]
    pub const fn embedding(&self) -> u64 {
        (self.vocab + self.learned_positions) * self.hidden
    }

    /// The output head, where it has weights of its own.
    #[must_use]
    pub const fn head(&self) -> u64 {
        let bias = if self.head_bias { self.vocab } else { 0 };
        bias + if self.tied {
            0
        } else {
            self.vocab * self.hidden
        }
    }

    /// Layers with a dense feed-forward block.
    #[must_use]
    pub fn dense_layers(&self) -> u64 {
        self.experts
            .map_or(self.layers, |experts| experts.dense_layers.min(self.layers))
    }

    /// Layers with experts.
    #[must_use]
    pub fn expert_layers(&self) -> u64 {
        self.layers - self.dense_layers()
    }

    /// Parameters of one layer.
    #[must_use]
    pub fn layer(&self, kind: LayerKind) -> u64 {
        let feed_forward = match kind {
            LayerKind::Dense => self.feed_forward(self.ffn),
            LayerKind::Experts => self.router() + self.routed_experts() + self.shared_experts(),
        };
        self.attention_parameters()
            + feed_forward
            + self.norms_per_layer * self.norm.parameters(self.hidden)
    }

    /// The matrix that sends tokens to experts, in one layer.
    #[must_use]
    pub fn router(&self) -> u64 {
        self.experts.map_or(0, |experts| {
            experts.count * (self.hidden + u64::from(experts.router_bias))
        })
    }

    /// All experts that tokens are sent to, in one layer.
    #[must_use]
    pub fn routed_experts(&self) -> u64 {
        self.experts
            .map_or(0, |experts| experts.count * self.feed_forward(experts.ffn))
    }

    /// The experts that every token goes through, in one layer.
    #[must_use]
    pub fn shared_experts(&self) -> u64 {
        self.experts.map_or(0, |experts| {
            if experts.shared_ffn == 0 {
                0
            } else {
                self.feed_forward(experts.shared_ffn)
            }
        })
    }

    /// A feed-forward block of a width.
    #[must_use]
    pub fn feed_forward(&self, width: u64) -> u64 {
        let matrices = self.mlp.matrices() * self.hidden * width;
        match self.biases {
            Biases::All => matrices + (self.mlp.matrices() - 1) * width + self.hidden,
            Biases::None | Biases::Qkv | Biases::Attention => matrices,
        }
    }

    /// Attention of one layer, its own norms included.
    #[must_use]
    pub fn attention_parameters(&self) -> u64 {
        let h = self.hidden;
        match self.attention {
            Attention::Grouped {
                heads,
                kv_heads,
                head_dim,
                qk_norm,
                sinks,
            } => {
                let (q, kv) = (heads * head_dim, kv_heads * head_dim);
                let biases = match self.biases {
                    Biases::None => 0,
                    Biases::Qkv => q + 2 * kv,
                    Biases::Attention | Biases::All => q + 2 * kv + h,
                };
                let norms = match qk_norm {
                    QkNorm::None => 0,
                    QkNorm::Head => 2 * self.norm.parameters(head_dim),
                    QkNorm::Full => self.norm.parameters(q) + self.norm.parameters(kv),
                };
                2 * h * q + 2 * h * kv + biases + norms + if sinks { heads } else { 0 }
            }
            Attention::Latent {
                heads,
                q_rank,
                kv_rank,
                nope,
                rope,
                value,
            } => {
                let q = heads * (nope + rope);
                let queries = if q_rank == 0 {
                    h * q
                } else {
                    h * q_rank + self.norm.parameters(q_rank) + q_rank * q
                };
                let keys_and_values = h * (kv_rank + rope)
                    + self.norm.parameters(kv_rank)
                    + kv_rank * heads * (nope + value);
                queries + keys_and_values + heads * value * h
            }
        }
    }

    /// Width of all query heads: 192 for a head of `DeepSeek-V3`, its rotary part included.
    #[must_use]
    pub const fn query_width(&self) -> u64 {
        match self.attention {
            Attention::Grouped {
                heads, head_dim, ..
            } => heads * head_dim,
            Attention::Latent {
                heads, nope, rope, ..
            } => heads * (nope + rope),
        }
    }

    /// Width of all value heads of queries, which is what attention's output projection takes.
    #[must_use]
    pub const fn output_width(&self) -> u64 {
        match self.attention {
            Attention::Grouped {
                heads, head_dim, ..
            } => heads * head_dim,
            Attention::Latent { heads, value, .. } => heads * value,
        }
    }

    /// Query heads.
    #[must_use]
    pub const fn heads(&self) -> u64 {
        match self.attention {
            Attention::Grouped { heads, .. } | Attention::Latent { heads, .. } => heads,
        }
    }

    /// Heads that keys and values can be split over.
    #[must_use]
    pub const fn kv_heads(&self) -> u64 {
        match self.attention {
            Attention::Grouped { kv_heads, .. } => kv_heads,
            Attention::Latent { heads, .. } => heads,
        }
    }

    /// Numbers that a token leaves in the cache of one layer when text is generated.
    #[must_use]
    pub const fn cache_width(&self) -> u64 {
        match self.attention {
            Attention::Grouped {
                kv_heads, head_dim, ..
            } => 2 * kv_heads * head_dim,
            Attention::Latent { kv_rank, rope, .. } => kv_rank + rope,
        }
    }

    /// Layers that attend to everything, and layers that attend to a window of so many tokens.
    #[must_use]
    pub const fn attending(&self) -> Attending {
        let Some(window) = self.window else {
            return Attending {
                full: self.layers,
                windowed: 0,
                window: 0,
            };
        };
        let full = match window.full_every {
            0 => 0,
            every => self.layers / every,
        };
        Attending {
            full,
            windowed: self.layers - full,
            window: window.tokens,
        }
    }
}

/// Which feed-forward block a layer has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum LayerKind {
    /// A dense one.
    Dense,
    /// Experts.
    Experts,
}

/// How many layers attend to how much.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Attending {
    /// To every earlier token.
    pub full: u64,
    /// To a window.
    pub windowed: u64,
    /// Its tokens.
    pub window: u64,
}
