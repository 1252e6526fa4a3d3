import { useNavigate } from "@tanstack/react-router";
import { api, read } from "../../../api/client";
import { useAction } from "../../../components/action";
import { Confirm } from "../../../components/dialog";

/** A model, a pool without models, or a replica of a pool. */
export type Removable = { model: string } | { pool: string; replica?: string };

/** Takes it out of the fleet, as a new version. Its name is typed, because clients may be served by it. */
export function Remove({ what, onClose }: { what: Removable; onClose: () => void }) {
  const navigate = useNavigate();
  const name = "model" in what ? what.model : (what.replica ?? what.pool);
  const wholePool = "pool" in what && what.replica === undefined;
  const remove = useAction(() => read(removed(what)), {
    quiet: true,
    stale: ["fleet"],
    done: `${name} is removed.`,
    then: () => {
      onClose();
      if (wholePool) void navigate({ to: "/operations/fleet" });
    },
  });
  return (
    <Confirm
      title={`Remove ${name}?`}
      action="Remove"
      typed={name}
      busy={remove.isPending}
      error={remove.error}
      onConfirm={() => remove.mutate(undefined)}
      onClose={onClose}
    >
      {"model" in what ? (
        <p>
          New requests for this model get status 404. Running requests end normally. Its usage records are
          kept.
        </p>
      ) : wholePool ? (
        <p>The pool and its replicas leave the fleet. Their engines keep running.</p>
      ) : (
        <p>It gets no new requests, and running requests end normally. The engine keeps running.</p>
      )}
    </Confirm>
  );
}

function removed(what: Removable) {
  if ("model" in what)
    return api.DELETE("/admin/v1/models/{model_name}", {
      params: { path: { model_name: what.model } },
    });
  if (what.replica !== undefined)
    return api.DELETE("/admin/v1/pools/{pool_name}/replicas/{replica_id}", {
      params: { path: { pool_name: what.pool, replica_id: what.replica }, query: { force: true } },
    });
  return api.DELETE("/admin/v1/pools/{pool_name}", { params: { path: { pool_name: what.pool } } });
}
