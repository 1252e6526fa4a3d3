import type { ComponentProps } from "react";
import { Icon, type IconName } from "./icon";

interface Look {
  kind?: "primary" | "danger" | "danger-solid" | "plain";
  size?: "small";
  icon?: IconName;
  busy?: boolean;
}

export function Button({
  kind,
  size,
  icon,
  busy,
  children,
  disabled,
  ...rest
}: ComponentProps<"button"> & Look) {
  return (
    <button
      type="button"
      className="button"
      data-kind={kind}
      data-size={size}
      disabled={disabled || busy}
      aria-busy={busy}
      {...rest}
    >
      {icon && <Icon name={icon} />}
      {busy ? "Working…" : children}
    </button>
  );
}

/** A button that is only a picture; `label` is what it says to those who cannot see it. */
export function IconButton({
  icon,
  label,
  ...rest
}: ComponentProps<"button"> & { icon: IconName; label: string }) {
  return (
    <button
      type="button"
      className="button"
      data-kind="plain"
      data-icon-only
      aria-label={label}
      title={label}
      {...rest}
    >
      <Icon name={icon} />
    </button>
  );
}
