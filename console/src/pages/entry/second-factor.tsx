import { QRCodeSVG } from "qrcode.react";
import { useState } from "react";
import { beginTotp, confirmTotp, disableTotp, newRecoveryCodes } from "../../api/session";
import { useAction } from "../../components/action";
import { Badge } from "../../components/badge";
import { Button } from "../../components/button";
import { CodeBlock, CopyButton } from "../../components/copy";
import { FormDialog } from "../../components/dialog";
import { TextField } from "../../components/field";
import { Card } from "../../components/page";
import { ShownOnce } from "../../components/shown-once";
import { useKeepSession, useMyself } from "../../shell/session";

type Step = "none" | "begin" | "disable" | "codes";

/** One-time codes of an authenticator (TOTP), and what opens without it. */
export function SecondFactor() {
  const { account } = useMyself();
  const [step, setStep] = useState<Step>("none");
  const [recoveryCodes, setRecoveryCodes] = useState<string[] | null>(null);
  return (
    <Card
      title="Second factor"
      about="A code from an authenticator app, in addition to the password."
      actions={account.totp ? <Badge tone="good">on</Badge> : <Badge tone="warn">off</Badge>}
    >
      <div className="stack-tight">
        {account.totp ? (
          <>
            <p className="quiet">{account.recovery_codes_left} recovery codes are left.</p>
            <div className="row">
              <Button onClick={() => setStep("codes")}>New recovery codes</Button>
              <Button kind="danger" onClick={() => setStep("disable")}>
                Turn off
              </Button>
            </div>
          </>
        ) : (
          <div>
            <Button kind="primary" onClick={() => setStep("begin")}>
              Turn on
            </Button>
          </div>
        )}
      </div>
      {step === "begin" && <Begin onClose={() => setStep("none")} onCodes={setRecoveryCodes} />}
      {step === "disable" && <Disable onClose={() => setStep("none")} />}
      {step === "codes" && <NewCodes onClose={() => setStep("none")} onCodes={setRecoveryCodes} />}
      {recoveryCodes && (
        <ShownOnce title="Recovery codes" onClose={() => setRecoveryCodes(null)}>
          <p>Each code works once and replaces the authenticator. The codes are shown only now.</p>
          <CodeBlock code={recoveryCodes.join("\n")} label="Recovery codes" />
        </ShownOnce>
      )}
    </Card>
  );
}

interface Steps {
  onClose: () => void;
  onCodes: (codes: string[]) => void;
}

function Begin({ onClose, onCodes }: Steps) {
  const keep = useKeepSession();
  const [password, setPassword] = useState("");
  const [code, setCode] = useState("");
  const begin = useAction(beginTotp, { quiet: true, stale: ["sessions"] });
  const confirm = useAction(confirmTotp, {
    quiet: true,
    stale: ["sessions"],
    done: "The second factor is on.",
    then: ({ recovery_codes, session }) => {
      onClose();
      onCodes(recovery_codes);
      keep(session);
    },
  });
  if (!begin.data) {
    return (
      <FormDialog
        title="Turn on the second factor"
        submit="Go on"
        busy={begin.isPending}
        error={begin.error}
        onSubmit={() => begin.mutate(password)}
        onClose={onClose}
      >
        <TextField
          label="Your password"
          type="password"
          autoComplete="current-password"
          autoFocus
          value={password}
          onChange={(event) => setPassword(event.currentTarget.value)}
        />
      </FormDialog>
    );
  }
  return (
    <FormDialog
      title="Turn on the second factor"
      submit="Turn on"
      busy={confirm.isPending}
      error={confirm.error}
      onSubmit={() => confirm.mutate(code)}
      onClose={onClose}
    >
      <p>
        Scan this code with your authenticator, enter the key below (time-based, six digits), or open the
        address on the device with the authenticator.
      </p>
      <QRCodeSVG
        className="qr-code"
        value={begin.data.uri}
        size={168}
        marginSize={4}
        title="The key for an authenticator, as a QR code"
      />
      <div className="secret">
        <code>{begin.data.secret}</code>
        <CopyButton text={begin.data.secret} />
      </div>
      <a className="wrap small" href={begin.data.uri}>
        Open in an authenticator
      </a>
      <TextField
        label="The code it shows"
        autoComplete="one-time-code"
        inputMode="numeric"
        autoFocus
        value={code}
        onChange={(event) => setCode(event.currentTarget.value)}
      />
    </FormDialog>
  );
}

function Disable({ onClose }: { onClose: () => void }) {
  const keep = useKeepSession();
  const [form, setForm] = useState({ password: "", code: "" });
  const disable = useAction(disableTotp, {
    quiet: true,
    stale: ["sessions"],
    done: "The second factor is off.",
    then: (session) => {
      onClose();
      keep(session);
    },
  });
  return (
    <FormDialog
      title="Turn off the second factor"
      submit="Turn off"
      danger
      busy={disable.isPending}
      error={disable.error}
      onSubmit={() => disable.mutate(form)}
      onClose={onClose}
    >
      <TextField
        label="Your password"
        type="password"
        autoComplete="current-password"
        value={form.password}
        onChange={(event) => setForm({ ...form, password: event.currentTarget.value })}
      />
      <TextField
        label="Code from the authenticator, or a recovery code"
        autoComplete="one-time-code"
        value={form.code}
        onChange={(event) => setForm({ ...form, code: event.currentTarget.value })}
      />
    </FormDialog>
  );
}

function NewCodes({ onClose, onCodes }: Steps) {
  const [password, setPassword] = useState("");
  const make = useAction(newRecoveryCodes, {
    quiet: true,
    stale: ["session"],
    then: ({ recovery_codes }) => {
      onClose();
      onCodes(recovery_codes);
    },
  });
  return (
    <FormDialog
      title="New recovery codes"
      submit="Make new codes"
      busy={make.isPending}
      error={make.error}
      onSubmit={() => make.mutate(password)}
      onClose={onClose}
    >
      <p>The codes that you have now stop working.</p>
      <TextField
        label="Your password"
        type="password"
        autoComplete="current-password"
        value={password}
        onChange={(event) => setPassword(event.currentTarget.value)}
      />
    </FormDialog>
  );
}
