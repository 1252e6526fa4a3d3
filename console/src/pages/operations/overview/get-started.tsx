/** The first steps of who runs a new deployment, until its first request. */
import { Link } from "@tanstack/react-router";
import type { ReactNode } from "react";
import { Card } from "../../../components/page";
import { count } from "../../../format/number";
import { useMyself } from "../../../shell/session";
import { useLiveFleet } from "../serving/live-fleet";

export function GetStarted() {
  const { organization, canOperate } = useMyself();
  const params = { organizationId: organization.id };
  return (
    <Card title="Get started" about="No request has come yet. Four steps lead to the first one and beyond.">
      <ol className="steps">
        <Step
          action={
            <Link className="button" to="/org/$organizationId/projects" params={params}>
              To the projects
            </Link>
          }
          title="Make a key"
        >
          A project holds keys. A key’s secret and a first request to paste are shown when it is made.
        </Step>
        <Step
          action={
            <Link className="button" to="/playground/chat">
              To the playground
            </Link>
          }
          title="Ask a model"
        >
          In the playground, or with any client of OpenAI’s API: its base URL is{" "}
          <code>{location.origin}/v1</code>.
        </Step>
        <Step
          action={
            <Link className="button" to="/operations/fleet">
              To the fleet
            </Link>
          }
          title="Add an engine"
        >
          {canOperate("fleet.read") && <Engines />}
          Add a model with the URL of your own vLLM, SGLang, TensorRT-LLM or other OpenAI server.
        </Step>
        <Step
          action={
            <Link className="button" to="/org/$organizationId/members" params={params}>
              To the members
            </Link>
          }
          title="Invite people"
        >
          Members get a link to choose a password. Customers get an{" "}
          <Link to="/organizations">organization</Link> each, with its own keys, limits and invoices.
        </Step>
      </ol>
    </Card>
  );
}

function Engines() {
  const fleet = useLiveFleet();
  if (!fleet.data) return null;
  const engines = fleet.data.pools.flatMap((pool) => pool.replicas);
  return `${count(engines.filter((each) => each.usable).length)} of ${count(engines.length)} engines can serve now. `;
}

function Step({ title, action, children }: { title: string; action: ReactNode; children: ReactNode }) {
  return (
    <li>
      <div>
        <h3>{title}</h3>
        <p>{children}</p>
      </div>
      {action}
    </li>
  );
}
