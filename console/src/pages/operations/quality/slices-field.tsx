/** Some of the deployment's slices. */
import { useQuery } from "@tanstack/react-query";
import { api, read } from "../../../api/client";
import { CheckField } from "../../../components/field";
import { ErrorNotice } from "../../../components/notice";

interface SlicesFieldProps {
  legend: string;
  hint?: string;
  chosen: string[];
  onChange: (chosen: string[]) => void;
}

export function SlicesField({ legend, hint, chosen, onChange }: SlicesFieldProps) {
  const slices = useQuery({
    queryKey: ["eval-slices"],
    queryFn: () => read(api.GET("/admin/v1/evals/slices")),
  });
  return (
    <fieldset className="choice">
      <legend className="field-label">{legend}</legend>
      {hint && <p className="field-hint">{hint}</p>}
      {slices.error && <ErrorNotice error={slices.error} />}
      <div className="checks">
        {slices.data?.data.map(({ name, about }) => (
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
