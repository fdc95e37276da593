//! Times: the clock, what people write, and the two forms of certificates.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use der::DateTime;
use der::asn1::{GeneralizedTime, UtcTime};
use ironswan_pki::Time;
use x509_cert::time::Time as Encoded;

use crate::failure::Failure;

/// Seconds of a day.
pub(crate) const DAY: i64 = 86_400;
/// The last second that certificates can name: 9999-12-31 23:59:59.
const LAST: i64 = 253_402_300_799;

/// The time of now.
#[expect(clippy::disallowed_methods, reason = "the only clock of this program")]
pub(crate) fn now() -> Time {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Time(i64::try_from(since.as_secs()).unwrap_or(i64::MAX))
}

/// Reads `2027-01-31` or `2027-01-31T12:00:00`, in UTC.
///
/// # Errors
/// The text is no such time, or one before 1970. `option` is named then.
pub(crate) fn parse(option: &str, text: &str) -> Result<Time, Failure> {
    read(text).ok_or_else(|| {
        Failure::usage(format!(
            "{option} {text:?} is no time: write it as 2027-01-31, or as 2027-01-31T12:00:00, in UTC"
        ))
    })
}

fn read(text: &str) -> Option<Time> {
    let (date, time) = text.trim_end_matches('Z').split_once(['T', ' ']).unwrap_or((text, "00:00:00"));
    let parts = |text: &str, by: char| -> Option<[u16; 3]> {
        let parts: Vec<u16> = text
            .split(by)
            .map(|part| part.bytes().all(|b| b.is_ascii_digit()).then(|| part.parse().ok()).flatten())
            .collect::<Option<_>>()?;
        parts.try_into().ok()
    };
    let [year, month, day] = parts(date, '-')?;
    let [hour, minute, second] = parts(time, ':')?;
    let small = |number| u8::try_from(number).ok();
    let time =
        DateTime::new(year, small(month)?, small(day)?, small(hour)?, small(minute)?, small(second)?).ok()?;
    i64::try_from(time.unix_duration().as_secs()).ok().map(Time)
}

/// The time in a certificate: "UTCTime through the year 2049", later GeneralizedTime (RFC 5280
/// section 4.1.2.5).
///
/// # Errors
/// The time lies before 1970 or after the year 9999.
pub(crate) fn encode(time: Time) -> Result<Encoded, Failure> {
    let seconds = u64::try_from(time.0).ok().filter(|_| time.0 <= LAST);
    let seconds = seconds.ok_or_else(|| Failure::usage("a time lies before 1970 or after the year 9999"))?;
    let since = Duration::from_secs(seconds);
    let utc = UtcTime::from_unix_duration(since).map(Encoded::UtcTime);
    utc.or_else(|_| GeneralizedTime::from_unix_duration(since).map(Encoded::GeneralTime))
        .map_err(crate::signed::encoding)
}

/// How far a time lies ahead of `now`, or how long ago it was: `in 12 days`, `3 hours ago`.
pub(crate) fn distance(time: Time, now: Time) -> String {
    let seconds = time.0.saturating_sub(now.0);
    let (count, unit) = match seconds.unsigned_abs() {
        s if s >= 2 * DAY as u64 => (s / DAY as u64, "days"),
        s if s >= 7_200 => (s / 3_600, "hours"),
        s if s >= 120 => (s / 60, "minutes"),
        s => (s, "seconds"),
    };
    if seconds < 0 { format!("{count} {unit} ago") } else { format!("in {count} {unit}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_as_they_are_shown() {
        let shown = |text| read(text).map(|time| time.to_string());
        assert_eq!(shown("2027-01-31").as_deref(), Some("2027-01-31 00:00:00 UTC"));
        assert_eq!(shown("2028-02-29T12:34:56").as_deref(), Some("2028-02-29 12:34:56 UTC"));
        assert_eq!(shown("2028-02-29T12:34:56Z").as_deref(), Some("2028-02-29 12:34:56 UTC"));
        for bad in [
            "",
            "2027",
            "2027-02-30",
            "2027-01-31T25:00:00",
            "31.01.2027",
            "2027-1--1",
            "+2027-01-01",
            "1969-01-01",
        ] {
            assert_eq!(read(bad), None, "{bad}");
        }
        assert!(parse("--date", "soon").unwrap_err().lines[0].contains("--date \"soon\" is no time"));
    }

    #[test]
    fn a_time_after_2049_gets_the_long_form() {
        let of = |text| encode(read(text).unwrap()).unwrap();
        assert!(matches!(of("2049-12-31T23:59:59"), Encoded::UtcTime(_)));
        assert!(matches!(of("2050-01-01"), Encoded::GeneralTime(_)));
        assert!(encode(Time(LAST + 1)).is_err() && encode(Time(-1)).is_err());
    }

    #[test]
    fn a_distance_names_the_largest_unit_that_fits() {
        let of = |seconds| distance(Time(1_000_000 + seconds), Time(1_000_000));
        assert_eq!(of(30 * DAY + 1), "in 30 days");
        assert_eq!(of(DAY), "in 24 hours");
        assert_eq!(of(-300), "5 minutes ago");
        assert_eq!(of(0), "in 0 seconds");
        assert_eq!(distance(Time(i64::MAX), Time(i64::MIN)).len(), "in 106751991167300 days".len());
    }
}
