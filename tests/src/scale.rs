//! One scenario, two sizes: the everyday one keeps the whole run short, the full one
//! is what the product promises. Called by tests wherever a number is a matter of size.

/// `full` when the run asks for full sizes (`scripts/test --full`), else `small`.
pub fn sized<T>(small: T, full: T) -> T {
    if is_full() { full } else { small }
}

/// Is this a run at full size?
pub fn is_full() -> bool {
    std::env::var_os("PGMILL_FULL").is_some_and(|value| !value.is_empty() && value != "0")
}
