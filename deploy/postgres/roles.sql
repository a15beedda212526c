-- The two roles of Berth's database, for PostgreSQL 15 and later. A superuser runs this in the database; it may be repeated:
--   psql -d berth -f deploy/postgres/roles.sql
-- berth_owner owns the tables and migrates. Berth's processes connect as berth_app: it reads and writes rows, and can't
-- alter, disable or drop the tables, triggers and functions that keep Revisions and frozen versions unchanged.
-- Set a password for both: ALTER ROLE berth_app PASSWORD '…';
DO $$
DECLARE
    role_name text;
    thing record;
BEGIN
    FOREACH role_name IN ARRAY ARRAY['berth_owner', 'berth_app'] LOOP
        IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = role_name) THEN
            EXECUTE format('CREATE ROLE %I LOGIN', role_name);
        END IF;
        EXECUTE format('ALTER ROLE %I NOSUPERUSER NOCREATEDB NOCREATEROLE NOREPLICATION NOBYPASSRLS', role_name);
    END LOOP;
    -- Objects that another role made before, such as an older Berth's superuser, now belong to the owner.
    FOR thing IN SELECT c.oid::regclass AS name, c.relkind FROM pg_class c
        WHERE c.relnamespace = 'public'::regnamespace AND c.relkind IN ('r', 'p', 'v', 'm') LOOP
        EXECUTE format('ALTER TABLE %s OWNER TO berth_owner', thing.name);
    END LOOP;
    FOR thing IN SELECT p.oid::regprocedure AS name FROM pg_proc p WHERE p.pronamespace = 'public'::regnamespace LOOP
        EXECUTE format('ALTER FUNCTION %s OWNER TO berth_owner', thing.name);
    END LOOP;
    EXECUTE format('REVOKE ALL ON DATABASE %I FROM PUBLIC', current_database());
    EXECUTE format('GRANT CONNECT ON DATABASE %I TO berth_owner, berth_app', current_database());
END
$$;
REVOKE ALL ON SCHEMA public FROM PUBLIC;
GRANT USAGE, CREATE ON SCHEMA public TO berth_owner;
GRANT USAGE ON SCHEMA public TO berth_app;
GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO berth_app;
GRANT USAGE, SELECT ON ALL SEQUENCES IN SCHEMA public TO berth_app;
-- Records of acts are append-only; a migration revokes the same from a role that exists before the table.
DO $$
BEGIN
    IF to_regclass('public.policies_auditevent') IS NOT NULL THEN
        REVOKE UPDATE, DELETE ON policies_auditevent FROM berth_app;
    END IF;
END
$$;
ALTER DEFAULT PRIVILEGES FOR ROLE berth_owner IN SCHEMA public GRANT SELECT, INSERT, UPDATE, DELETE ON TABLES TO berth_app;
ALTER DEFAULT PRIVILEGES FOR ROLE berth_owner IN SCHEMA public GRANT USAGE, SELECT ON SEQUENCES TO berth_app;
