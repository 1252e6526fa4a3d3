#!/bin/sh
# Run once by the postgres image, on an empty database: the role that gateways and workers use. `migrate` grants what it needs.
psql --set ON_ERROR_STOP=1 --username "$POSTGRES_USER" --dbname "$POSTGRES_DB" --set password="$APPLICATION_PASSWORD" <<'END'
CREATE ROLE slipstream_app LOGIN PASSWORD :'password';
END
