#!/bin/sh
# The PostgreSQL image runs this once, when its volume is empty: it creates Berth's two roles with the passwords from their files.
set -eu
psql --set ON_ERROR_STOP=1 --quiet --username "$POSTGRES_USER" --dbname "$POSTGRES_DB" <<'SQL'
\i /berth/roles.sql
\set owner_password `cat /run/secrets/database_owner_password`
\set app_password `cat /run/secrets/database_password`
ALTER ROLE berth_owner PASSWORD :'owner_password';
ALTER ROLE berth_app PASSWORD :'app_password';
SQL
