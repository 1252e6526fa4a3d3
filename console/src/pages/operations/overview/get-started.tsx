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
    <Card title="Get started" about="No requests yet. These four steps lead to the first one.">
      <ol className="steps">
        <Step
          action={
            <Link className="button" to="/org/$organizationId/projects" params={params}>
              Open the projects
            </Link>
          }
          title="Make a key"
        >
          A project holds keys. When you make a key, you see its secret and a first request to paste.
        </Step>
        <Step
          action={
            <Link className="button" to="/playground/chat">
              Open the playground
            </Link>
          }
          title="Ask a model"
        >
          Use the playground, or any OpenAI client with the base URL <code>{location.origin}/v1</code>.
        </Step>
        <Step
          action={
            <Link className="button" to="/operations/fleet">
              Open the fleet
            </Link>
          }
          title="Add an engine"
        >
          {canOperate("fleet.read") && <Engines />}
          Add a model with the URL of your own vLLM, SGLang, TensorRT-LLM or other OpenAI-compatible server.
        </Step>
        <Step
          action={
            <Link className="button" to="/org/$organizationId/members" params={params}>
              Open the members
            </Link>
          }
          title="Invite people"
        >
          Each member gets a link to choose a password. Each customer gets an{" "}
          <Link to="/organizations">organization</Link> with its own keys, limits and invoices.
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
