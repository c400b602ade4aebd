-- Checks that other parts share: membership in roles, names, and the error for a row that breaks a rule.
-- parameters: none; locks: none; caller: installation, once per database

CREATE FUNCTION mill_private.is_member(role name) RETURNS bool
    LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp
    RETURN COALESCE((SELECT pg_has_role(current_user, r.oid, 'MEMBER') FROM pg_roles r WHERE r.rolname = is_member.role), false)
        OR (SELECT r.rolsuper FROM pg_roles r WHERE r.rolname = current_user);
COMMENT ON FUNCTION mill_private.is_member(name) IS 'pgmill: whether the current role is a member of this role, if that exists';

CREATE FUNCTION mill_private.is_member_of(member name, role name) RETURNS bool
    LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp
    RETURN COALESCE((SELECT pg_has_role(m.oid, r.oid, 'MEMBER') OR m.rolsuper FROM pg_roles m, pg_roles r
                      WHERE m.rolname = is_member_of.member AND r.rolname = is_member_of.role),
                    (SELECT m.rolsuper FROM pg_roles m WHERE m.rolname = is_member_of.member), false);
COMMENT ON FUNCTION mill_private.is_member_of(name, name) IS 'pgmill: whether a role is a member of another one, which may not exist';

CREATE FUNCTION mill_private.note_writer() RETURNS trigger
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $function$
BEGIN
    NEW.made_by := current_user;
    RETURN NEW;
END
$function$;
COMMENT ON FUNCTION mill_private.note_writer() IS 'pgmill: notes in made_by which role writes the row; runs as that role';

CREATE FUNCTION mill_private.raise_violation(reason text, hint text DEFAULT NULL) RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $function$
BEGIN
    IF hint IS NULL THEN
        RAISE EXCEPTION USING MESSAGE = reason, ERRCODE = 'check_violation';
    END IF;
    RAISE EXCEPTION USING MESSAGE = reason, HINT = hint, ERRCODE = 'check_violation';
END
$function$;
COMMENT ON FUNCTION mill_private.raise_violation(text, text) IS 'pgmill: raises check_violation with this reason';

CREATE FUNCTION mill_private.count_of(n bigint, noun text) RETURNS text
    LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp
    RETURN concat(n, ' ', noun, CASE WHEN n <> 1 THEN 's' END);
COMMENT ON FUNCTION mill_private.count_of(bigint, text) IS 'pgmill: a number with its noun: 1 run, 2 runs';

CREATE FUNCTION mill_private.check_name(what text, name text) RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $function$
BEGIN
    IF name IS NULL OR name = '' THEN
        PERFORM mill_private.raise_violation(format('a %s needs a name', what));
    ELSIF length(name) > 200 THEN
        PERFORM mill_private.raise_violation(format('the name of a %s must have at most 200 characters, this one has %s', what, length(name)));
    ELSIF name ~ '[[:cntrl:]]' THEN
        PERFORM mill_private.raise_violation(format('the name of a %s must not have control characters', what));
    END IF;
END
$function$;
COMMENT ON FUNCTION mill_private.check_name(text, text) IS 'pgmill: raises an error if this cannot be a name';

-- For triggers that run as the writer.
CREATE FUNCTION mill_private.check_member(what text, owner name) RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $function$
BEGIN
    IF NOT EXISTS (SELECT FROM pg_roles r WHERE r.rolname = owner) THEN
        RAISE EXCEPTION USING MESSAGE = format('role "%s" does not exist', owner), ERRCODE = 'undefined_object';
    ELSIF NOT pg_has_role(owner, 'MEMBER') THEN
        RAISE EXCEPTION USING MESSAGE = format('%s belongs to %s, and %s is not a member of it', what, owner, current_user),
            ERRCODE = 'insufficient_privilege';
    END IF;
END
$function$;
COMMENT ON FUNCTION mill_private.check_member(text, name) IS 'pgmill: raises an error unless the writer is a member of the owner';

-- For triggers that run as the owner of the catalog.
CREATE FUNCTION mill_private.check_role(role name, what text, owner name) RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $function$
BEGIN
    IF NOT mill_private.is_member_of(role, owner) THEN
        RAISE EXCEPTION USING MESSAGE = format('%s belongs to %s, and %s is not a member of it', what, owner, role),
            ERRCODE = 'insufficient_privilege';
    END IF;
END
$function$;
COMMENT ON FUNCTION mill_private.check_role(name, text, name) IS 'pgmill: raises an error unless a role is a member of the owner';
