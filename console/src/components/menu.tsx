import { DropdownMenu } from "radix-ui";
import type { ReactNode } from "react";
import { IconButton } from "./button";
import type { IconName } from "./icon";

export interface MenuAction {
  label: string;
  onSelect: () => void;
  tone?: "bad";
  disabled?: boolean;
}

/** Not modal: the modal form writes a style element, which the content security policy refuses. */
export function Menu({
  trigger,
  children,
  align = "start",
}: {
  trigger: ReactNode;
  children: ReactNode;
  align?: "start" | "end";
}) {
  return (
    <DropdownMenu.Root modal={false}>
      <DropdownMenu.Trigger asChild>{trigger}</DropdownMenu.Trigger>
      <DropdownMenu.Portal>
        <DropdownMenu.Content className="menu" align={align} sideOffset={5} collisionPadding={8}>
          {children}
        </DropdownMenu.Content>
      </DropdownMenu.Portal>
    </DropdownMenu.Root>
  );
}

export const MenuItem = DropdownMenu.Item;
export const MenuLabel = DropdownMenu.Label;
export const MenuLine = () => <DropdownMenu.Separator className="menu-line" />;

/** What can be done with a row. Nothing at all where nothing may be done. */
export function ActionsMenu({
  label,
  actions,
  icon = "dots",
}: {
  label: string;
  actions: MenuAction[];
  icon?: IconName;
}) {
  if (actions.length === 0) return null;
  return (
    <Menu align="end" trigger={<IconButton icon={icon} label={label} />}>
      {actions.map((action) => (
        <MenuItem
          key={action.label}
          className="menu-item"
          data-tone={action.tone}
          disabled={action.disabled ?? false}
          onSelect={action.onSelect}
        >
          {action.label}
        </MenuItem>
      ))}
    </Menu>
  );
}
