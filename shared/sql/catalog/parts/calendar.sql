-- The calendar, as far as the server needs it: which cron expressions, time zones and steps are valid, and the next slot of a
-- schedule that is not cron. The program has the same calendar (shared/src/calendar): tests compare verdicts, texts and moments. A
-- local time happens at the first moment at which the clock of the zone shows it or has gone past it.
-- parameters: none; locks: none; caller: installation, once per database

-- `field`: 1 the second .. 6 the day of the week. `members`: bit n is set if the item has the value n.
CREATE FUNCTION mill_private.parse_cron_item(field int, item text, OUT members bigint, OUT wrong text)
    LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $function$
DECLARE
    month CONSTANT int := 5;
    weekday CONSTANT int := 6;
    months CONSTANT text[] := ARRAY['jan', 'feb', 'mar', 'apr', 'may', 'jun', 'jul', 'aug', 'sep', 'oct', 'nov', 'dec'];
    weekdays CONSTANT text[] := ARRAY['sun', 'mon', 'tue', 'wed', 'thu', 'fri', 'sat'];
    name text := (ARRAY['second', 'minute', 'hour', 'day of month', 'month', 'day of week'])[field];
    lowest int := (ARRAY[0, 0, 0, 1, 1, 0])[field];
    -- Sunday is 0 and 7; * ends with Saturday.
    highest int := (ARRAY[59, 59, 23, 31, 12, 7])[field];
    highest_of_all int := (ARRAY[59, 59, 23, 31, 12, 6])[field];
    longest_step int := (ARRAY[60, 60, 24, 31, 12, 7])[field];
    range_text text := split_part(item, '/', 1);
    step_text text := CASE WHEN strpos(item, '/') > 0 THEN substr(item, strpos(item, '/') + 1) END;
    ends text[];
    numbers bigint[];
    low int := lowest;
    high int := highest_of_all;
BEGIN
    IF range_text <> '*' THEN
        ends := CASE WHEN strpos(range_text, '-') > 0
            THEN ARRAY[split_part(range_text, '-', 1), substr(range_text, strpos(range_text, '-') + 1)]
            ELSE ARRAY[range_text] END;
        numbers := ARRAY(SELECT COALESCE(
            CASE field WHEN month THEN array_position(months, lower(one_end COLLATE "C"))
                       WHEN weekday THEN array_position(weekdays, lower(one_end COLLATE "C")) - 1 END,
            CASE WHEN one_end ~ '^[0-9]{1,9}$' THEN one_end::bigint END) FROM unnest(ends) WITH ORDINALITY AS given (one_end, place) ORDER BY place);
        IF array_position(numbers, NULL) IS NOT NULL THEN
            wrong := format('%s: "%s" is not a value, a range or a step', name, item);
            RETURN;
        END IF;
        FOR place IN 1 .. cardinality(ends) LOOP
            IF numbers[place] NOT BETWEEN lowest AND highest THEN
                wrong := format('%s: %s is not within %s to %s', name, ends[place], lowest, highest);
                RETURN;
            END IF;
        END LOOP;
        low := numbers[1];
        high := numbers[cardinality(ends)];
        IF cardinality(ends) = 2 AND field = weekday AND low > 0 AND lower(ends[2] COLLATE "C") = 'sun' THEN
            high := highest;
        ELSIF cardinality(ends) = 1 AND step_text IS NOT NULL THEN
            wrong := format('%s: the step in %s needs a range, as in %s-%s/%s', name, item, range_text, highest, step_text);
        END IF;
        IF wrong IS NULL AND low > high THEN
            wrong := format('%s: the range %s goes backward', name, item);
        END IF;
    END IF;
    IF wrong IS NULL AND step_text !~ '^[0-9]{1,9}$' THEN
        wrong := format('%s: "%s" is not a value, a range or a step', name, item);
    ELSIF wrong IS NULL AND step_text::int NOT BETWEEN 1 AND longest_step THEN
        wrong := format('%s: the step %s is not within 1 to %s', name, step_text, longest_step);
    ELSIF wrong IS NULL AND step_text IS NULL THEN
        members := (2::bigint << high) - (1::bigint << low);
    ELSIF wrong IS NULL THEN
        members := (SELECT bit_or(1::bigint << value) FROM generate_series(low, high, step_text::int) AS value);
    END IF;
END
$function$;
COMMENT ON FUNCTION mill_private.parse_cron_item(int, text) IS
    'pgmill: parses an item of a cron field: its values, or why it is refused';

CREATE FUNCTION mill.check_cron(cron text) RETURNS text
    LANGUAGE plpgsql IMMUTABLE STRICT SET search_path = pg_catalog, pg_temp AS $function$
DECLARE
    most_characters CONSTANT int := 1000;
    day CONSTANT int := 4;
    month CONSTANT int := 5;
    weekday CONSTANT int := 6;
    month_lengths CONSTANT int[] := ARRAY[31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    trimmed text := btrim(cron, E' \t\n\r');
    fields text[];
    item text;
    parsed record;
    day_set bigint := 0;
    month_set bigint := 0;
    last_day bool := false;
BEGIN
    IF char_length(cron) > most_characters THEN
        RETURN format('it is longer than %s characters', most_characters);
    END IF;
    IF starts_with(trimmed, '@') THEN
        CASE lower(trimmed COLLATE "C")
        WHEN '@yearly', '@annually', '@monthly', '@weekly', '@daily', '@midnight', '@hourly' THEN
            RETURN NULL;
        ELSE
            RETURN format('unknown shortcut %s; known are @yearly, @annually, @monthly, @weekly, @daily, @midnight and @hourly',
                          trimmed);
        END CASE;
    END IF;
    fields := CASE WHEN trimmed = '' THEN '{}'::text[] ELSE regexp_split_to_array(trimmed, E'[ \t\n\r]+') END;
    IF cardinality(fields) = 5 THEN
        fields := '0'::text || fields;
    ELSIF cardinality(fields) <> 6 THEN
        RETURN format('it has %s fields; five are needed, or six with seconds in front', cardinality(fields));
    END IF;
    FOR field IN 1 .. cardinality(fields) LOOP
        FOREACH item IN ARRAY string_to_array(fields[field], ',') LOOP
            IF field = day AND item IN ('L', 'l', '$') THEN
                last_day := true;
                CONTINUE;
            END IF;
            parsed := mill_private.parse_cron_item(field, item);
            IF parsed.wrong IS NOT NULL THEN
                RETURN parsed.wrong;
            ELSIF field = day THEN
                day_set := day_set | parsed.members;
            ELSIF field = month THEN
                month_set := month_set | parsed.members;
            END IF;
        END LOOP;
    END LOOP;
    -- If both day and weekday are restricted, one of them is enough.
    IF last_day OR NOT starts_with(fields[day], '*') AND NOT starts_with(fields[weekday], '*')
       OR EXISTS (SELECT FROM unnest(month_lengths) WITH ORDINALITY AS known (length, number)
                   WHERE month_set & (1::bigint << known.number::int) <> 0 AND day_set & ((2::bigint << known.length) - 1) <> 0) THEN
        RETURN NULL;
    END IF;
    RETURN 'it never fires: none of its months has such a day';
END
$function$;
COMMENT ON FUNCTION mill.check_cron(text) IS 'pgmill: why a cron expression is refused; NULL if it is valid';

CREATE FUNCTION mill.check_zone(zone text) RETURNS text
    LANGUAGE plpgsql STABLE STRICT SET search_path = pg_catalog, pg_temp AS $function$
BEGIN
    -- The server also accepts abbreviations and rules such as "XYZ-3", which are no zones. A word with a slash and no digit can only
    -- be a name. Everything else is looked up in the list, which the server needs some time to make.
    IF zone ~ '^[A-Za-z_]+(/[A-Za-z_]+)+$' THEN
        PERFORM timezone(zone, timestamptz 'epoch');
        RETURN NULL;
    ELSIF lower(zone) = 'utc' OR EXISTS (SELECT FROM pg_timezone_names n WHERE lower(n.name) = lower(zone)) THEN
        RETURN NULL;
    END IF;
    RETURN format('time zone "%s" does not exist', left(zone, 80));
EXCEPTION WHEN invalid_parameter_value THEN
    RETURN format('time zone "%s" does not exist', left(zone, 80));
END
$function$;
COMMENT ON FUNCTION mill.check_zone(text) IS 'pgmill: why a name is not a time zone; NULL if it is one';

CREATE FUNCTION mill.check_step(step interval) RETURNS text
    LANGUAGE plpgsql IMMUTABLE STRICT SET search_path = pg_catalog, pg_temp AS $function$
DECLARE
    months numeric;
    clock numeric;
BEGIN
    IF NOT isfinite(step) THEN
        RETURN 'an infinite interval cannot be repeated';
    END IF;
    months := extract(year FROM step) * 12 + extract(month FROM step);
    clock := extract(day FROM step) * 86400 + extract(hour FROM step) * 3600 + extract(minute FROM step) * 60 + extract(second FROM step);
    IF months < 0 OR clock < 0 OR months = 0 AND clock = 0 THEN
        RETURN 'a repeated interval must be more than 0';
    ELSIF months > 0 AND (extract(day FROM step) <> 0 OR clock <> 0) THEN
        RETURN 'months cannot be mixed with days or hours in a schedule';
    END IF;
    RETURN NULL;
END
$function$;
COMMENT ON FUNCTION mill.check_step(interval) IS 'pgmill: why an interval cannot be the step of a fixed schedule; NULL if it can';

CREATE FUNCTION mill_private.zone_offset(moment timestamptz, zone text) RETURNS interval
    LANGUAGE sql IMMUTABLE STRICT SET search_path = pg_catalog, pg_temp
    RETURN timezone(zone, moment) - timezone('UTC', moment);
COMMENT ON FUNCTION mill_private.zone_offset(timestamptz, text) IS 'pgmill: how far the clock of a zone is ahead of UTC';

-- By bisection, to the second.
CREATE FUNCTION mill_private.find_zone_change(moment timestamptz, zone text) RETURNS timestamptz
    LANGUAGE plpgsql IMMUTABLE STRICT SET search_path = pg_catalog, pg_temp AS $function$
DECLARE
    low timestamptz := date_trunc('second', moment, 'UTC') - interval '26 hours';
    seconds int := 26 * 3600;
    half int;
    before interval := mill_private.zone_offset(low, zone);
BEGIN
    IF before = mill_private.zone_offset(moment, zone) THEN
        RETURN NULL;
    END IF;
    WHILE seconds > 1 LOOP
        half := seconds / 2;
        IF mill_private.zone_offset(low + half * interval '1 second', zone) = before THEN
            low := low + half * interval '1 second';
            seconds := seconds - half;
        ELSE
            seconds := half;
        END IF;
    END LOOP;
    RETURN low + interval '1 second';
END
$function$;
COMMENT ON FUNCTION mill_private.find_zone_change(timestamptz, text) IS
    'pgmill: the change of a zone''s clock within the 26 hours up to a moment; NULL if there was none';

CREATE FUNCTION mill_private.latest_wall_time(moment timestamptz, zone text) RETURNS timestamp
    LANGUAGE plpgsql IMMUTABLE STRICT SET search_path = pg_catalog, pg_temp AS $function$
DECLARE
    change timestamptz := mill_private.find_zone_change(moment, zone);
BEGIN
    -- In an hour that is shown for the second time, that is the end of the hour.
    RETURN GREATEST(timezone(zone, moment), timezone(zone, change - interval '1 microsecond'));
END
$function$;
COMMENT ON FUNCTION mill_private.latest_wall_time(timestamptz, text) IS
    'pgmill: the latest time that a zone''s clock has shown at a moment';

CREATE FUNCTION mill_private.first_moment(wall timestamp, zone text) RETURNS timestamptz
    LANGUAGE plpgsql IMMUTABLE STRICT SET search_path = pg_catalog, pg_temp AS $function$
DECLARE
    guess timestamptz := timezone(zone, wall);
    change timestamptz := mill_private.find_zone_change(guess, zone);
    before timestamptz;
BEGIN
    IF change IS NULL THEN
        RETURN guess;
    END IF;
    before := timezone('UTC', wall - mill_private.zone_offset(change - interval '1 second', zone));
    IF before < change THEN
        RETURN before;
    END IF;
    RETURN GREATEST(change, timezone('UTC', wall - mill_private.zone_offset(change, zone)));
END
$function$;
COMMENT ON FUNCTION mill_private.first_moment(timestamp, text) IS
    'pgmill: the first moment at which a zone''s clock shows a time or has gone past it';

-- As the server adds an interval in its own zone.
CREATE FUNCTION mill_private.add_interval(moment timestamptz, step interval, zone text) RETURNS timestamptz
    LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $function$
DECLARE
    clock text := COALESCE(zone, 'UTC');
    calendar interval := make_interval(months => (extract(year FROM step) * 12 + extract(month FROM step))::int,
                                       days => extract(day FROM step)::int);
    wall timestamp := timezone(clock, moment) + calendar;
BEGIN
    -- Of a time that is shown twice the same one is kept, unless the calendar has moved it.
    RETURN CASE WHEN wall = timezone(clock, moment) THEN moment ELSE mill_private.first_moment(wall, clock) END + (step - calendar);
END
$function$;
COMMENT ON FUNCTION mill_private.add_interval(timestamptz, interval, text) IS
    'pgmill: a moment plus an interval: months and days on the calendar of the zone, hours by the stopwatch';

CREATE FUNCTION mill_private.add_steps(origin timestamp, months bigint, span numeric, k bigint) RETURNS timestamp
    LANGUAGE sql IMMUTABLE STRICT SET search_path = pg_catalog, pg_temp
    RETURN origin + make_interval(months => (k * months)::int) + div(k * span, 86400000000)::int * interval '1 day'
           + mod(k * span, 86400000000)::float8 * interval '1 microsecond';
COMMENT ON FUNCTION mill_private.add_steps(timestamp, bigint, numeric, bigint) IS
    'pgmill: k steps after a wall clock time, on a clock whose days have 24 hours';

CREATE FUNCTION mill_private.next_slot(initial_start timestamptz, step interval, zone text, after timestamptz) RETURNS timestamptz
    LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $function$
DECLARE
    clock text := COALESCE(zone, 'UTC');
    months bigint := extract(year FROM step) * 12 + extract(month FROM step);
    span numeric := (extract(day FROM step) * 86400 + extract(hour FROM step) * 3600 + extract(minute FROM step) * 60
                     + extract(second FROM step)) * 1000000;
    origin timestamp;
    reading timestamp;
    distance numeric;
    low bigint;
    high bigint;
    middle bigint;
    slot timestamptz;
BEGIN
    IF after < initial_start OR after IS NULL OR initial_start IS NULL OR step IS NULL THEN
        RETURN CASE WHEN after < initial_start THEN initial_start END;
    ELSIF NOT isfinite(after) OR NOT isfinite(initial_start) THEN
        RETURN NULL;
    END IF;
    IF months < 0 OR span < 0 OR months = 0 AND span = 0 THEN
        RAISE invalid_parameter_value USING MESSAGE = 'a repeated interval must be more than 0';
    END IF;
    origin := timezone(clock, initial_start);
    reading := mill_private.latest_wall_time(after, clock);
    distance := GREATEST(extract(epoch FROM reading - origin) * 1000000, 0);
    IF months = 0 THEN
        low := div(distance, span);
    ELSE
        -- A month has 28 to 31 days, here in microseconds. Bisection between the two bounds, as in the program.
        low := GREATEST(div(distance, months * 2678400000000 + span) - 1, 0);
        high := div(distance, months * 2419200000000 + span) + 2;
        WHILE low + 1 < high LOOP
            middle := low + (high - low) / 2;
            IF mill_private.add_steps(origin, months, span, middle) <= reading THEN
                low := middle;
            ELSE
                high := middle;
            END IF;
        END LOOP;
    END IF;
    slot := mill_private.first_moment(mill_private.add_steps(origin, months, span, low + 1), clock);
    -- The calendar of the program ends here.
    RETURN CASE WHEN slot <= timestamptz '9999-12-27 22:00:00.999999+00' THEN slot END;
EXCEPTION WHEN datetime_field_overflow OR interval_field_overflow OR numeric_value_out_of_range THEN
    RETURN NULL;
END
$function$;
COMMENT ON FUNCTION mill_private.next_slot(timestamptz, interval, text, timestamptz) IS
    'pgmill: the first initial_start + k * step after a moment, on the zone''s wall clock (NULL: UTC); NULL beyond the year 9999';

CREATE FUNCTION mill_private.shift_time(at timestamptz, shift interval, zone text) RETURNS timestamptz
    LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $function$
DECLARE
    days int := extract(day FROM shift)::int;
    months int := (extract(year FROM shift) * 12 + extract(month FROM shift))::int;
    hours interval := shift - make_interval(months => months, days => days);
    wall timestamp;
BEGIN
    IF days <> 0 OR months <> 0 THEN
        IF zone = 'UTC' THEN
            at := ((at AT TIME ZONE 'UTC') + make_interval(months => months, days => days)) AT TIME ZONE 'UTC';
        ELSE
            wall := (at AT TIME ZONE zone) + make_interval(months => months, days => days);
            at := mill_private.first_moment(wall, zone);
        END IF;
    END IF;
    RETURN at + hours;
END
$function$;
COMMENT ON FUNCTION mill_private.shift_time(timestamptz, interval, text) IS
    'pgmill: a logical time moved by the shift of an edge: months and days on the calendar of the zone, hours by the stopwatch';
