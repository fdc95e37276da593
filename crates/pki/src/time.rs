//! Times of certificates: UTCTime and GeneralizedTime (RFC 5280 section 4.1.2.5), to the second.

use std::time::SystemTime;

use crate::der::{GENERALIZED_TIME, Malformed, Read, Reader, UTC_TIME};

/// Seconds in a day.
const DAY: i64 = 86_400;

/// Seconds since the beginning of 1970, UTC, without leap seconds. Times before are negative.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Time(pub i64);

impl Time {
    /// The time some seconds later.
    #[must_use]
    pub fn plus(self, seconds: i64) -> Self {
        Self(self.0.saturating_add(seconds))
    }

    /// Seconds since 1970 of a clock's time.
    fn of_clock(time: SystemTime) -> i64 {
        match time.duration_since(SystemTime::UNIX_EPOCH) {
            Ok(after) => i64::try_from(after.as_secs()).unwrap_or(i64::MAX),
            Err(before) => i64::try_from(before.duration().as_secs()).map_or(i64::MIN, |s| -s),
        }
    }

    /// Reads a `Time`: "UTCTime values [...] YYMMDDHHMMSSZ", "GeneralizedTime values [...]
    /// YYYYMMDDHHMMSSZ", and "MUST NOT include fractional seconds".
    pub(crate) fn read(reader: &mut Reader<'_>) -> Read<Self> {
        let element = reader.element()?;
        match element.tag {
            UTC_TIME => Self::parse(element.value, 2),
            GENERALIZED_TIME => Self::parse(element.value, 4),
            _ => Err(Malformed),
        }
    }

    /// Reads a GeneralizedTime of OCSP.
    pub(crate) fn read_generalized(reader: &mut Reader<'_>) -> Read<Self> {
        Self::parse(reader.read(GENERALIZED_TIME)?, 4)
    }

    /// Reads digits, of which so many are the year.
    fn parse(text: &[u8], year_digits: usize) -> Read<Self> {
        let digits = text.strip_suffix(b"Z").ok_or(Malformed)?;
        if digits.len() != year_digits + 10 || !digits.iter().all(u8::is_ascii_digit) {
            return Err(Malformed);
        }
        let number = |from: usize, len: usize| {
            digits[from..from + len].iter().fold(0, |n, &digit| n * 10 + i64::from(digit - b'0'))
        };
        let part = |n: usize| number(year_digits + 2 * n, 2);
        let year = match (year_digits, number(0, year_digits)) {
            // "Where YY is greater than or equal to 50, the year SHALL be interpreted as 19YY".
            (2, year) if year >= 50 => 1900 + year,
            (2, year) => 2000 + year,
            (_, year) => year,
        };
        let [month, day, hour, minute, second] = [part(0), part(1), part(2), part(3), part(4)];
        let valid = (1..=12).contains(&month)
            && (1..=days_in(year, month)).contains(&day)
            && hour < 24
            && minute < 60
            && second < 60;
        if !valid {
            return Err(Malformed);
        }
        Ok(Self(days_before(year, month, day) * DAY + hour * 3600 + minute * 60 + second))
    }
}

impl From<SystemTime> for Time {
    fn from(time: SystemTime) -> Self {
        Self(Self::of_clock(time))
    }
}

impl std::fmt::Display for Time {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (days, seconds) = (self.0.div_euclid(DAY), self.0.rem_euclid(DAY));
        let (year, month, day) = date(days);
        let (hour, minute, second) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
        write!(f, "{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02} UTC")
    }
}

fn is_leap(year: i64) -> bool {
    year % 4 == 0 && (year % 100 != 0 || year % 400 == 0)
}

fn days_in(year: i64, month: i64) -> i64 {
    match month {
        2 if is_leap(year) => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// Days from the beginning of 1970 to a date. The year begins in March here, so that a leap day is
/// its last.
fn days_before(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let (era, year_of_era) = (year.div_euclid(400), year.rem_euclid(400));
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    era * 146_097 + year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year - 719_468
}

/// The date that lies so many days after the beginning of 1970: year, month, day.
fn date(days: i64) -> (i64, i64, i64) {
    let days = days.saturating_add(719_468);
    let (era, day_of_era) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    (era * 400 + year_of_era + i64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(tag: u8, text: &str) -> Read<String> {
        let der = crate::der::emit(tag, &[text.as_bytes()]);
        Time::read(&mut Reader::new(&der)).map(|time| time.to_string())
    }

    #[test]
    fn both_forms_are_read() {
        assert_eq!(read(UTC_TIME, "700101000000Z").unwrap(), "1970-01-01 00:00:00 UTC");
        assert_eq!(read(UTC_TIME, "500101120001Z").unwrap(), "1950-01-01 12:00:01 UTC");
        assert_eq!(read(UTC_TIME, "491231235959Z").unwrap(), "2049-12-31 23:59:59 UTC");
        assert_eq!(read(GENERALIZED_TIME, "20240229000000Z").unwrap(), "2024-02-29 00:00:00 UTC");
        assert_eq!(read(GENERALIZED_TIME, "99991231235959Z").unwrap(), "9999-12-31 23:59:59 UTC");
        assert_eq!(read(GENERALIZED_TIME, "00000101000000Z").unwrap(), "0000-01-01 00:00:00 UTC");
        assert_eq!(Time(i64::MAX).to_string().split_off(20).len(), Time(i64::MAX).to_string().len() - 20);
    }

    #[test]
    fn a_date_that_does_not_exist_is_malformed() {
        for text in ["20230229000000Z", "20231301000000Z", "20230001000000Z", "20230101240000Z"] {
            assert_eq!(read(GENERALIZED_TIME, text), Err(Malformed), "{text}");
        }
        for text in ["2301010000Z", "230101000000+0100", "230101000000", "23010100000aZ", "", "Z"] {
            assert_eq!(read(UTC_TIME, text), Err(Malformed), "{text}");
        }
    }

    #[test]
    fn every_day_of_eight_hundred_years_has_one_number() {
        let first = days_before(1600, 1, 1);
        for days in first..first + 292_194 {
            let (year, month, day) = date(days);
            assert_eq!(days_before(year, month, day), days);
            assert!(day <= days_in(year, month));
        }
    }
}
