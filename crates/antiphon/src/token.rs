//! `antiphon token`: make, list and revoke the tokens of people. A secret is printed once, and kept by nobody but its holder.

use std::process::ExitCode;

use antiphon_server::api::model::{TokenList, TokenMade, TokenView};
use antiphon_types::Millis;
use serde_json::json;

use crate::cli::{ReadArgs, Target, TokenCommand, TokenCreateArgs, TokenRevokeArgs};
use crate::client::{Client, escape, new_key};
use crate::failure::Failure;
use crate::render::{self, clock, print, say};

/// Carries one of them out.
pub(crate) fn run(target: &Target, command: &TokenCommand) -> Result<ExitCode, Failure> {
    let client = Client::new(target)?;
    match command {
        TokenCommand::Create(args) => create(&client, args),
        TokenCommand::List(args) => list(&client, args),
        TokenCommand::Revoke(args) => revoke(&client, args),
    }
}

fn create(client: &Client, args: &TokenCreateArgs) -> Result<ExitCode, Failure> {
    let body = json!({
        "name": args.name,
        "role": args.role,
        "teams": args.teams,
        "expires_in_ms": args.expires.map(Millis::as_millis),
    });
    let made: TokenMade = client.post("/v1/tokens", &new_key(), &body)?;
    if args.json {
        render::json(&made);
        return Ok(ExitCode::SUCCESS);
    }
    print(&format!("{}\n", made.secret));
    let until = made.token.expires_ms.map_or_else(
        || "until it is revoked".to_owned(),
        |at| format!("until {}", clock(at)),
    );
    say(&format!(
        "`{}` is {} {until}; the secret above is shown this once: its holder sets ANTIPHON_TOKEN to it",
        made.token.name,
        is(&made.token)
    ));
    Ok(ExitCode::SUCCESS)
}

/// `a member of rlhf, eval`.
fn is(token: &TokenView) -> String {
    let article = match token.role.as_str() {
        "operator" | "admin" => "an",
        _ => "a",
    };
    let role = format!("{article} {}", token.role);
    if token.teams.is_empty() {
        role
    } else {
        format!("{role} of {}", token.teams.join(", "))
    }
}

fn list(client: &Client, args: &ReadArgs) -> Result<ExitCode, Failure> {
    let list: TokenList = client.get("/v1/tokens")?;
    if args.json {
        render::json(&list);
        return Ok(ExitCode::SUCCESS);
    }
    let row = |token: &TokenView| {
        let ends = match (token.revoked_ms, token.expires_ms) {
            (Some(at), _) => format!(
                "revoked {} by {}",
                clock(at),
                token.revoked_by.as_deref().unwrap_or("?")
            ),
            (None, Some(at)) => clock(at),
            (None, None) => String::new(),
        };
        vec![
            token.name.clone(),
            token.role.clone(),
            token.teams.join(","),
            token.state.clone(),
            clock(token.made_ms),
            token.made_by.clone(),
            ends,
        ]
    };
    let rows = list.tokens.iter().map(row).collect();
    let header = ["NAME", "ROLE", "TEAMS", "STATE", "MADE", "BY", "ENDS"];
    render::table(&header, rows, &["MADE", "BY"]);
    Ok(ExitCode::SUCCESS)
}

fn revoke(client: &Client, args: &TokenRevokeArgs) -> Result<ExitCode, Failure> {
    let path = format!("/v1/tokens/{}/revoke", escape(&args.name));
    let revoked: TokenView = client.post(&path, &new_key(), &json!({}))?;
    if args.json {
        render::json(&revoked);
    } else {
        say(&format!(
            "`{}` is revoked: the next request with it is refused; its jobs run on",
            args.name
        ));
    }
    Ok(ExitCode::SUCCESS)
}
