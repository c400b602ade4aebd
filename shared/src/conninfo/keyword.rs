//! libpq's keywords, one line each: the environment variable below it and what this version does with it.
//!
//! Read by `parse` (which keywords exist), `resolve` (what to take, ignore or refuse) and the display (what to
//! hide). A keyword that libpq knows and this program does not honour is never skipped silently when that could
//! weaken a connection or lead to another server: it is refused by its name with what to do instead.

/// What becomes of a keyword's value. An empty value always counts as not given.
#[derive(Clone, Copy, Debug)]
pub(super) enum Rule {
    /// Read by `resolve`.
    Taken,
    /// Without effect here, harmless.
    Ignored,
    /// Only these values; the other values that libpq knows are refused by name.
    Only { fine: &'static [&'static str], refused: &'static [&'static str], instead: &'static str },
    /// Not honoured by this version, whatever the value.
    Refused { instead: &'static str },
}

#[derive(Debug)]
pub(super) struct Keyword {
    pub name: &'static str,
    pub variable: Option<&'static str>,
    pub rule: Rule,
}

const PLAIN: &str = "connect over a Unix socket or a trusted network with sslmode=prefer";
const NO_CERTIFICATES: &str = "leave it out and connect over a Unix socket or a trusted network with sslmode=prefer";
const ONE_SERVER: &str = "name one host and leave it out";
const BY_PASSWORD: &str = "log in by password, SCRAM or a server that trusts this host";
const WRITE_OUT: &str = "write host, port, user and dbname out";

const fn taken(name: &'static str, variable: &'static str) -> Keyword {
    Keyword { name, variable: Some(variable), rule: Rule::Taken }
}

const fn ignored(name: &'static str) -> Keyword {
    Keyword { name, variable: None, rule: Rule::Ignored }
}

const fn refused(name: &'static str, variable: Option<&'static str>, instead: &'static str) -> Keyword {
    Keyword { name, variable, rule: Rule::Refused { instead } }
}

const fn only(
    name: &'static str,
    variable: Option<&'static str>,
    fine: &'static [&'static str],
    refused: &'static [&'static str],
    instead: &'static str,
) -> Keyword {
    Keyword { name, variable, rule: Rule::Only { fine, refused, instead } }
}

pub(super) const KEYWORDS: &[Keyword] = &[
    taken("host", "PGHOST"),
    taken("hostaddr", "PGHOSTADDR"),
    taken("port", "PGPORT"),
    taken("user", "PGUSER"),
    taken("password", "PGPASSWORD"),
    taken("dbname", "PGDATABASE"),
    taken("options", "PGOPTIONS"),
    taken("connect_timeout", "PGCONNECT_TIMEOUT"),
    // our own name is always set; text is always UTF-8; the kernel's keep-alives do
    ignored("application_name"),
    ignored("fallback_application_name"),
    ignored("client_encoding"),
    ignored("keepalives"),
    ignored("keepalives_idle"),
    ignored("keepalives_interval"),
    ignored("keepalives_count"),
    ignored("tcp_user_timeout"),
    // of no meaning on a plain connection
    ignored("sslcompression"),
    ignored("sslsni"),
    ignored("ssl_min_protocol_version"),
    ignored("ssl_max_protocol_version"),
    ignored("krbsrvname"),
    ignored("gsslib"),
    ignored("max_protocol_version"),
    only(
        "sslmode",
        Some("PGSSLMODE"),
        &["disable", "allow", "prefer"],
        &["require", "verify-ca", "verify-full"],
        PLAIN,
    ),
    only("sslnegotiation", Some("PGSSLNEGOTIATION"), &["postgres"], &["direct"], PLAIN),
    only("sslcertmode", Some("PGSSLCERTMODE"), &["disable", "allow"], &["require"], PLAIN),
    only("gssencmode", Some("PGGSSENCMODE"), &["disable", "prefer"], &["require"], PLAIN),
    only(
        "channel_binding",
        Some("PGCHANNELBINDING"),
        &["disable", "prefer"],
        &["require"],
        "use channel_binding=prefer",
    ),
    only("gssdelegation", Some("PGGSSDELEGATION"), &["0"], &["1"], BY_PASSWORD),
    only("min_protocol_version", Some("PGMINPROTOCOLVERSION"), &["3.0"], &["3.2", "latest"], "leave it out"),
    only(
        "target_session_attrs",
        Some("PGTARGETSESSIONATTRS"),
        &["any"],
        &["read-write", "read-only", "primary", "standby", "prefer-standby"],
        ONE_SERVER,
    ),
    only("load_balance_hosts", Some("PGLOADBALANCEHOSTS"), &["disable"], &["random"], ONE_SERVER),
    only("replication", None, &["false", "off", "no", "0"], &["true", "on", "yes", "1", "database"], "leave it out"),
    refused("passfile", Some("PGPASSFILE"), "give the password itself, in the config file or in PGPASSWORD"),
    refused("service", Some("PGSERVICE"), WRITE_OUT),
    refused("servicefile", Some("PGSERVICEFILE"), WRITE_OUT),
    refused("sslcert", Some("PGSSLCERT"), NO_CERTIFICATES),
    refused("sslkey", Some("PGSSLKEY"), NO_CERTIFICATES),
    refused("sslpassword", None, NO_CERTIFICATES),
    refused("sslrootcert", Some("PGSSLROOTCERT"), NO_CERTIFICATES),
    refused("sslcrl", Some("PGSSLCRL"), NO_CERTIFICATES),
    refused("sslcrldir", Some("PGSSLCRLDIR"), NO_CERTIFICATES),
    refused("sslkeylogfile", None, NO_CERTIFICATES),
    refused("requiressl", Some("PGREQUIRESSL"), PLAIN),
    refused("requirepeer", Some("PGREQUIREPEER"), "leave it out and guard the socket's folder by its rights"),
    refused("require_auth", Some("PGREQUIREAUTH"), "leave it out and let the server's pg_hba.conf decide"),
    refused("scram_client_key", None, BY_PASSWORD),
    refused("scram_server_key", None, BY_PASSWORD),
    refused("oauth_issuer", None, BY_PASSWORD),
    refused("oauth_client_id", None, BY_PASSWORD),
    refused("oauth_client_secret", None, BY_PASSWORD),
    refused("oauth_scope", None, BY_PASSWORD),
];

pub(super) fn find(name: &str) -> Option<&'static Keyword> {
    KEYWORDS.iter().find(|keyword| keyword.name == name)
}

/// Keywords whose values nobody may see, in no message and no log.
pub(super) fn is_secret(name: &str) -> bool {
    matches!(name, "password" | "sslpassword" | "oauth_client_secret" | "scram_client_key" | "scram_server_key")
}

#[cfg(test)]
mod tests {
    use super::{KEYWORDS, find, is_secret};
    use std::collections::HashSet;

    #[test]
    fn no_keyword_and_no_variable_stands_twice() {
        let names: HashSet<_> = KEYWORDS.iter().map(|keyword| keyword.name).collect();
        assert_eq!(names.len(), KEYWORDS.len());
        let variables: Vec<_> = KEYWORDS.iter().filter_map(|keyword| keyword.variable).collect();
        assert_eq!(variables.iter().collect::<HashSet<_>>().len(), variables.len());
    }

    #[test]
    fn secrets_are_known_keywords() {
        let secrets = KEYWORDS.iter().filter(|keyword| is_secret(keyword.name)).count();
        assert_eq!(secrets, 5);
        assert!(find("password").is_some() && find("passwort").is_none());
    }
}
