import { Link } from "@tanstack/react-router";
import { api, read, type Schemas } from "../../../api/client";
import { useList } from "../../../api/list";
import { useLive } from "../../../api/live";
import { Empty } from "../../../components/notice";
import { Page } from "../../../components/page";
import { type Column, Table } from "../../../components/table";
import { Time } from "../../../components/time";

type Version = Schemas["FleetVersion"];
const KEY = ["fleet", "versions"];

export function FleetVersions() {
  useLive(["fleet"], [KEY]);
  const list = useList(KEY, (cursor) =>
    read(api.GET("/admin/v1/fleet/versions", { params: { query: { limit: 100, cursor } } })),
  );
  const columns: Column<Version>[] = [
    {
      id: "version",
      heading: "Version",
      value: (row) => row.version,
      cell: (row) => (
        <Link
          className="primary-cell"
          to="/operations/fleet/versions/$version"
          params={{ version: String(row.version) }}
        >
          {row.version}
        </Link>
      ),
    },
    { id: "action", heading: "Made by", value: (row) => row.action ?? "settings" },
    { id: "actor", heading: "Who", value: (row) => row.actor },
    {
      id: "created_at",
      heading: "When",
      value: (row) => row.created_at,
      cell: (row) => <Time at={row.created_at} />,
    },
  ];
  return (
    <Page
      title="Versions of the fleet"
      about="Every change to models, pools and replicas makes a version; the newest is in force."
      crumbs={[
        <Link key="fleet" to="/operations/fleet">
          Fleet
        </Link>,
      ]}
    >
      <Table
        label="Versions of the fleet"
        columns={columns}
        list={list}
        rowKey={(row) => String(row.version)}
        csvName="fleet-versions"
        empty={
          <Empty title="No version yet">
            The first gateway that starts stores the settings as version 1.
          </Empty>
        }
      />
    </Page>
  );
}
