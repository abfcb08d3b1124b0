//! Sizes on the command line, and lists of them.

/// A number of bytes: `4096`, `4k`, `1MiB`. Units are powers of two.
pub(crate) fn bytes(text: &str) -> Result<u64, String> {
    let digits = text.find(|char: char| !char.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let shift = match unit.to_ascii_lowercase().as_str() {
        "" | "b" => 0,
        "k" | "kib" => 10,
        "m" | "mib" => 20,
        "g" | "gib" => 30,
        "t" | "tib" => 40,
        _ => return Err(format!("{text:?} is no size: write a number of bytes, as in 4096, 4k or 1MiB")),
    };
    let scaled = number.parse::<u64>().ok().and_then(|number| number.checked_mul(1 << shift));
    scaled.ok_or_else(|| format!("{text:?} is no size: write a number of bytes, as in 4096, 4k or 1MiB"))
}

/// The size of a block of a benchmark.
pub(crate) fn block_bytes(text: &str) -> Result<u32, String> {
    let bytes = bytes(text)?;
    let fits = (512..=16 << 20).contains(&bytes) && bytes.is_multiple_of(512);
    if fits { Ok(bytes as u32) } else { Err(format!("{text}: use multiples of 512 up to 16MiB")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_units_that_are_powers_of_two() {
        for (text, value) in [("512", 512), ("4k", 4096), ("4KiB", 4096), ("3m", 3 << 20), ("2GiB", 2 << 30)]
        {
            assert_eq!(bytes(text), Ok(value));
        }
        for text in ["", "k", "-1", "4kB", "4 k", "99999999999999999999", "16777216t"] {
            assert!(bytes(text).is_err(), "{text:?}");
        }
        assert!(block_bytes("1000").is_err() && block_bytes("32m").is_err());
    }
}
