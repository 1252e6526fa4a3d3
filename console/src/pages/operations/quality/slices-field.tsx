/** Some of the deployment's slices: those that models of a tier can be asked. */
import { useQuery } from "@tanstack/react-query";
import { api, read, type Schemas } from "../../../api/client";
import { CheckField } from "../../../components/field";
import { ErrorNotice } from "../../../components/notice";

interface SlicesFieldProps {
  legend: string;
  hint?: string;
  /** Of the model that is asked. Undefined: it is not known yet. */
  tier: Schemas["Tier"] | undefined;
  chosen: string[];
  onChange: (chosen: string[]) => void;
}

export function SlicesField({ legend, hint, tier, chosen, onChange }: SlicesFieldProps) {
  const slices = useQuery({
    queryKey: ["eval-slices"],
    queryFn: () => read(api.GET("/admin/v1/evals/slices")),
  });
  const fitting = slices.data?.data.filter((each) => each.tier === tier);
  return (
    <fieldset className="choice">
      <legend className="field-label">{legend}</legend>
      {hint && <p className="field-hint">{hint}</p>}
      {slices.error && <ErrorNotice error={slices.error} />}
      <div className="checks">
        {fitting?.map(({ name, about }) => (
          <CheckField
            key={name}
            label={<span title={about}>{name}</span>}
            checked={chosen.includes(name)}
            onChange={(event) =>
              onChange(
                event.currentTarget.checked ? [...chosen, name] : chosen.filter((each) => each !== name),
              )
            }
          />
        ))}
      </div>
    </fieldset>
  );
}
