-- The role that the board "tenant" reads PostgreSQL as: names and totals; no request, no key, no address, no text.
-- As the owner of the tables: psql --set password=… --file reader.sql postgresql://OWNER@HOST/slipstream
CREATE ROLE slipstream_boards LOGIN PASSWORD :'password' CONNECTION LIMIT 10;
ALTER ROLE slipstream_boards SET default_transaction_read_only = on;
ALTER ROLE slipstream_boards SET statement_timeout = '30s';
GRANT USAGE ON SCHEMA gateway TO slipstream_boards;
GRANT SELECT ON gateway.usage_hourly, gateway.budget_crossings, gateway.slo_minutes, gateway.prefix_shares TO slipstream_boards;
GRANT SELECT (id, name) ON gateway.organizations, gateway.projects TO slipstream_boards;
