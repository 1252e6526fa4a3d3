/** A reason as the judge writes it, its powers of ten as people do: "evidence 10^2.9". */
export function Reason({ text }: { text: string }) {
  const [first, ...powers] = text.split(/10\^(?=-?\d)/);
  return (
    <>
      {first}
      {powers.map((each, place) => {
        const [power = ""] = /^-?\d+(\.\d+)?/.exec(each) ?? [];
        return (
          // biome-ignore lint/suspicious/noArrayIndexKey: parts of one text
          <span key={place}>
            10<sup>{power.replace("-", "−")}</sup>
            {each.slice(power.length)}
          </span>
        );
      })}
    </>
  );
}
