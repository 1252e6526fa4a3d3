import { getRouteApi, Link } from "@tanstack/react-router";
import { api, read, type Schemas } from "../../api/client";
import { useList } from "../../api/list";
import { Empty } from "../../components/notice";
import { filtersOf } from "../../shell/search";
import { useMyself } from "../../shell/session";
import { PrincipalForm, Principals } from "./principals";

type ServiceAccount = Schemas["ServiceAccount"];
const route = getRouteApi("/signed/org/$organizationId/service-accounts");

export function ServiceAccounts() {
  const { organizationId } = route.useParams();
  const search = filtersOf(route.useSearch());
  const navigate = route.useNavigate();
  const set = (part: Partial<typeof search>) =>
    void navigate({ search: (old) => ({ ...old, ...part }), replace: true });
  const { can } = useMyself();
  const path = { organization_id: organizationId };
  const list = useList(["service-accounts", organizationId, search], (cursor) =>
    read(
      api.GET("/admin/v1/organizations/{organization_id}/service-accounts", {
        params: { path, query: { limit: 100, cursor, ...search } },
      }),
    ),
  );
  return (
    <Principals<ServiceAccount>
      title="Service accounts"
      about="Scripts and pipelines that use the admin API. Their admin keys have their role."
      csvName="service-accounts"
      list={list}
      writes={can("members.write", organizationId)}
      make="New service account"
      columns={[
        {
          id: "name",
          heading: "Name",
          value: (row) => row.name,
          cell: (row) =>
            can("admin_keys.read", organizationId) ? (
              <Link
                className="primary-cell"
                to="/org/$organizationId/admin-keys"
                params={{ organizationId }}
                search={{ principal_id: row.id }}
              >
                {row.name}
              </Link>
            ) : (
              <span className="primary-cell">{row.name}</span>
            ),
        },
      ]}
      created="Made"
      stateOf={(row) => (row.disabled_at ? "disabled" : "active")}
      toggle={(service_account_id, disabled) =>
        read(
          api.PATCH("/admin/v1/service-accounts/{service_account_id}", {
            params: { path: { service_account_id } },
            body: { disabled },
          }),
        )
      }
      remove={(service_account_id) =>
        read(
          api.DELETE("/admin/v1/service-accounts/{service_account_id}", {
            params: { path: { service_account_id } },
          }),
        )
      }
      removed="The service account and its admin keys are removed."
      ends="All its admin keys end at once."
      filter={{ label: "Name", value: search.name, set: (name) => set({ name }) }}
      chosenRole={search.role}
      setRole={(role) => set({ role })}
      empty={(add) => (
        <Empty title="No service accounts" action={add}>
          Make one for each program that uses the admin API, so that the audit log can tell them apart.
        </Empty>
      )}
      form={(account, onClose) => (
        <PrincipalForm<ServiceAccount>
          title={account ? `Change ${account.name}` : "New service account"}
          submit="Save"
          row={account}
          firstRole="viewer"
          save={(body) =>
            account === null
              ? read(
                  api.POST("/admin/v1/organizations/{organization_id}/service-accounts", {
                    params: { path },
                    body,
                  }),
                )
              : read(
                  api.PATCH("/admin/v1/service-accounts/{service_account_id}", {
                    params: { path: { service_account_id: account.id } },
                    body,
                  }),
                )
          }
          done={(made) => `${made.name} is saved.`}
          onClose={onClose}
        />
      )}
    />
  );
}
