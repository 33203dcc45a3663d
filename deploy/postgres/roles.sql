-- The roles of a store, made once by an administrator, with psql of PostgreSQL 14 or later: STORE_PASSWORD=... psql --file roles.sql
--
-- `holdfast` owns its database and is nothing more: workers and servers connect as it. Members of `holdfast_reader` may look:
--
--     CREATE ROLE ana LOGIN PASSWORD '...' IN ROLE holdfast_reader;
--
\set ON_ERROR_STOP on
\getenv password STORE_PASSWORD
\if :{?password}
\else
  DO 'BEGIN RAISE ''set STORE_PASSWORD: the password of the role that workers and servers connect as''; END';
\endif
CREATE ROLE holdfast LOGIN PASSWORD :'password';
CREATE ROLE holdfast_reader;
CREATE DATABASE holdfast OWNER holdfast;
REVOKE ALL ON DATABASE holdfast FROM PUBLIC;
GRANT CONNECT ON DATABASE holdfast TO holdfast_reader;
\connect holdfast
ALTER DEFAULT PRIVILEGES FOR ROLE holdfast GRANT USAGE ON SCHEMAS TO holdfast_reader;
ALTER DEFAULT PRIVILEGES FOR ROLE holdfast GRANT SELECT ON TABLES TO holdfast_reader;
