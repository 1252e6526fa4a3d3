import { useQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { api, read } from "../../api/client";
import { useMyself } from "../../shell/session";

const STALE_MS = 300_000;

/** A key by its name, or by the beginning of its id where the role does not see keys. */
export function KeyName({
  organizationId,
  projectId,
  keyId,
}: {
  organizationId: string;
  projectId: string;
  keyId: string;
}) {
  const { can } = useMyself();
  const sees = can("keys.read", organizationId);
  const key = useQuery({
    queryKey: ["key", keyId],
    staleTime: STALE_MS,
    queryFn: () => read(api.GET("/admin/v1/keys/{key_id}", { params: { path: { key_id: keyId } } })),
    enabled: sees,
  });
  const short = <code title={keyId}>{keyId.slice(0, 8)}</code>;
  if (!sees) return short;
  return (
    <Link
      to="/org/$organizationId/projects/$projectId/keys/$keyId"
      params={{ organizationId, projectId, keyId }}
      title={keyId}
    >
      {key.data?.name ?? short}
    </Link>
  );
}
