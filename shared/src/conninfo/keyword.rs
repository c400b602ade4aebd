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

const NO_GSS: &str = "encrypt by TLS (sslmode)";
const NO_LISTS: &str = "leave it out, and end trust in a certificate by replacing sslrootcert";
const NO_ENCRYPTED_KEYS: &str = "give sslkey a key that is not encrypted, readable by its owner alone";
const BY_PASSWORD: &str = "log in by password, SCRAM, a client certificate or a server that trusts this host";

const fn taken(name: &'static str, variable: &'static str) -> Keyword {
    Keyword { name, variable: Some(variable), rule: Rule::Taken }
}

/// Taken, and without a variable in libpq.
const fn written(name: &'static str) -> Keyword {
    Keyword { name, variable: None, rule: Rule::Taken }
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
    taken("service", "PGSERVICE"),
    taken("servicefile", "PGSERVICEFILE"),
    taken("host", "PGHOST"),
    taken("hostaddr", "PGHOSTADDR"),
    taken("port", "PGPORT"),
    taken("user", "PGUSER"),
    taken("password", "PGPASSWORD"),
    taken("passfile", "PGPASSFILE"),
    taken("dbname", "PGDATABASE"),
    taken("options", "PGOPTIONS"),
    taken("connect_timeout", "PGCONNECT_TIMEOUT"),
    written("keepalives"),
    written("keepalives_idle"),
    written("keepalives_interval"),
    written("keepalives_count"),
    written("tcp_user_timeout"),
    taken("target_session_attrs", "PGTARGETSESSIONATTRS"),
    taken("load_balance_hosts", "PGLOADBALANCEHOSTS"),
    taken("sslmode", "PGSSLMODE"),
    taken("sslrootcert", "PGSSLROOTCERT"),
    taken("sslcert", "PGSSLCERT"),
    taken("sslkey", "PGSSLKEY"),
    taken("sslsni", "PGSSLSNI"),
    taken("ssl_min_protocol_version", "PGSSLMINPROTOCOLVERSION"),
    taken("ssl_max_protocol_version", "PGSSLMAXPROTOCOLVERSION"),
    taken("channel_binding", "PGCHANNELBINDING"),
    // our own name is always set; text is always UTF-8
    ignored("application_name"),
    ignored("fallback_application_name"),
    ignored("client_encoding"),
    // of no meaning without the things they belong to
    ignored("sslcompression"),
    ignored("krbsrvname"),
    ignored("gsslib"),
    ignored("max_protocol_version"),
    only("sslnegotiation", Some("PGSSLNEGOTIATION"), &["postgres"], &["direct"], "use sslnegotiation=postgres"),
    only("sslcertmode", Some("PGSSLCERTMODE"), &["disable", "allow"], &["require"], "use sslcertmode=allow"),
    only("gssencmode", Some("PGGSSENCMODE"), &["disable", "prefer"], &["require"], NO_GSS),
    only("gssdelegation", Some("PGGSSDELEGATION"), &["0"], &["1"], BY_PASSWORD),
    only("min_protocol_version", Some("PGMINPROTOCOLVERSION"), &["3.0"], &["3.2", "latest"], "leave it out"),
    only("replication", None, &["false", "off", "no", "0"], &["true", "on", "yes", "1", "database"], "leave it out"),
    refused("sslpassword", None, NO_ENCRYPTED_KEYS),
    refused("sslcrl", Some("PGSSLCRL"), NO_LISTS),
    refused("sslcrldir", Some("PGSSLCRLDIR"), NO_LISTS),
    refused("sslkeylogfile", None, "leave it out"),
    refused("requiressl", Some("PGREQUIRESSL"), "use sslmode=require"),
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
