-- dagster: group=shop owners=team:logistics
-- The carrier sends this file when it likes to; until then only the tables that need it wait.
CREATE TABLE deliveries AS
SELECT order_id PRIMARY KEY, delivered_at
FROM file://data/deliveries.json;

-- dagster: group=reports owners=team:logistics
-- Orders that have not arrived yet.
CREATE TABLE open_orders AS
SELECT o.order_id, o.user_id, o.ordered_at
FROM orders o LEFT ANTI JOIN deliveries d ON o.order_id = d.order_id;
