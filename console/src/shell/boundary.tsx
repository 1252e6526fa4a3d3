import { Component, type ReactNode } from "react";
import { Button } from "../components/button";
import { Notice } from "../components/notice";

/** What a page breaks on stays in that page. */
export class Boundary extends Component<{ children: ReactNode }, { error: unknown }> {
  override state = { error: null as unknown };

  static getDerivedStateFromError(error: unknown) {
    return { error };
  }

  override render() {
    if (this.state.error === null) return this.props.children;
    return (
      <Notice tone="bad" title="This page broke">
        <p>{this.state.error instanceof Error ? this.state.error.message : String(this.state.error)}</p>
        <p>
          <Button size="small" onClick={() => location.reload()}>
            Reload the page
          </Button>
        </p>
      </Notice>
    );
  }
}
