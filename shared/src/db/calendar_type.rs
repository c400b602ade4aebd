//! The calendar's moments and intervals as PostgreSQL's timestamptz and interval, in the binary form of the protocol.
//!
//! An infinite timestamp, or one beyond the years that the calendar knows, cannot be read: statements that may meet one
//! say what they want instead.

use crate::calendar::{Interval, Moment};
use std::error::Error;
use tokio_postgres::types::private::BytesMut;
use tokio_postgres::types::{FromSql, IsNull, ToSql, Type, to_sql_checked};

/// PostgreSQL counts from the year 2000.
const EPOCH_US: i64 = 946_684_800_000_000;

type Wrong = Box<dyn Error + Sync + Send>;

impl FromSql<'_> for Moment {
    fn from_sql(_: &Type, raw: &[u8]) -> Result<Moment, Wrong> {
        let us = i64::from_be_bytes(raw.try_into()?);
        if us == i64::MAX || us == i64::MIN {
            return Err("an infinite time is not supported".into());
        }
        Ok(Moment::from_us(us.checked_add(EPOCH_US).ok_or(crate::calendar::Error::OutOfRange)?)?)
    }

    fn accepts(kind: &Type) -> bool {
        *kind == Type::TIMESTAMPTZ
    }
}

impl ToSql for Moment {
    fn to_sql(&self, _: &Type, out: &mut BytesMut) -> Result<IsNull, Wrong> {
        out.extend_from_slice(&(self.us() - EPOCH_US).to_be_bytes());
        Ok(IsNull::No)
    }

    fn accepts(kind: &Type) -> bool {
        *kind == Type::TIMESTAMPTZ
    }

    to_sql_checked!();
}

impl FromSql<'_> for Interval {
    fn from_sql(_: &Type, raw: &[u8]) -> Result<Interval, Wrong> {
        let (us, rest) = raw.split_at_checked(8).ok_or("an interval of the wrong size")?;
        let (days, months) = rest.split_at_checked(4).ok_or("an interval of the wrong size")?;
        let us = i64::from_be_bytes(us.try_into()?);
        let (days, months) = (i32::from_be_bytes(days.try_into()?), i32::from_be_bytes(months.try_into()?));
        Ok(Interval { months, days, us })
    }

    fn accepts(kind: &Type) -> bool {
        *kind == Type::INTERVAL
    }
}

impl ToSql for Interval {
    fn to_sql(&self, _: &Type, out: &mut BytesMut) -> Result<IsNull, Wrong> {
        out.extend_from_slice(&self.us.to_be_bytes());
        out.extend_from_slice(&self.days.to_be_bytes());
        out.extend_from_slice(&self.months.to_be_bytes());
        Ok(IsNull::No)
    }

    fn accepts(kind: &Type) -> bool {
        *kind == Type::INTERVAL
    }

    to_sql_checked!();
}

#[cfg(test)]
mod tests {
    use super::*;

    fn through<T: ToSql + for<'a> FromSql<'a>>(value: &T, kind: &Type) -> T {
        let mut out = BytesMut::new();
        value.to_sql(kind, &mut out).expect("written");
        T::from_sql(kind, &out).expect("read")
    }

    #[test]
    fn moments_and_intervals_come_back_as_they_went() {
        for us in [Moment::MIN.us(), -1, 0, EPOCH_US, Moment::MAX.us()] {
            let moment = Moment::from_us(us).expect("within range");
            assert_eq!(through(&moment, &Type::TIMESTAMPTZ), moment);
        }
        let interval = Interval { months: -3, days: 40, us: i64::MIN };
        assert_eq!(through(&interval, &Type::INTERVAL), interval);
    }

    #[test]
    fn an_infinite_or_too_distant_time_is_an_error() {
        for us in [i64::MIN, i64::MAX, i64::MAX - 1, Moment::MAX.us() - EPOCH_US + 1] {
            assert!(Moment::from_sql(&Type::TIMESTAMPTZ, &us.to_be_bytes()).is_err());
        }
        assert!(Moment::from_sql(&Type::TIMESTAMPTZ, &[1, 2]).is_err());
        assert!(Interval::from_sql(&Type::INTERVAL, &[1, 2]).is_err());
    }
}
