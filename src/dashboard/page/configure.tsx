import { useEffect, useRef, useState } from "hono/jsx/dom";
import { describeSecretUsers } from "../../manifest/secret-users.ts";
import { isReservedName } from "../../secrets/secret-name.ts";
import type { ViewProps } from "./actions.ts";
import type { SecretsDocument, ServerDocument } from "./documents.ts";
import { Button, Empty, Header, Ready } from "./parts.tsx";
import { routeOfServer, serversOf, valueOf } from "./state.ts";

export function ConfigureView({ state, actions }: ViewProps) {
  const servers = serversOf(state);
  const files = state.hub?.manifest ?? [];
  return (
    <div>
      <Header
        title="Configure"
        about={files.length === 0 ? "There is no manifest yet." : files.join(", ")}
      >
        <Button text="Check" onPress={() => actions.checkManifest()} />
        <Button text="Reload" kind="primary" onPress={() => actions.reload()} />
      </Header>
      <section>
        {state.refusal !== undefined && valueOf(state.check)?.ok !== false && (
          <div key="refusal" class="banner bad panel">
            <h3>The last change of the manifest was refused; the hub keeps the previous one</h3>
            <pre tabindex={0}>{state.refusal}</pre>
          </div>
        )}
        <Ready
          of={state.check}
          what="a check of the manifest"
          icon="configure"
          draw={({ ok, problems }) =>
            problems.length === 0 ? (
              <p key="none" class={ok ? "outcome good" : "outcome"}>
                The manifest has no problems.
              </p>
            ) : (
              <ul key="some" class="card list">
                {problems.map(({ file, line, column, path, message }) => (
                  <li key={`${file}:${line ?? 0}:${column ?? 0}:${message}`}>
                    <span class="mono">
                      {[file.split(/[\\/]/).at(-1), line, column]
                        .filter((part) => part !== null)
                        .join(":")}
                    </span>{" "}
                    {path === "" ? "" : <strong key="path">{path} </strong>}
                    <span>{message}</span>
                  </li>
                ))}
              </ul>
            )
          }
        />
      </section>
      <h2 class="part">Secrets</h2>
      <Ready
        of={state.secrets}
        what="a list of secrets"
        icon="configure"
        draw={({ secrets }) =>
          secrets.length === 0 ? (
            <p key="none" class="about">
              The manifest names no secrets. Write <code>{"${secret:NAME}"}</code> in place of a
              value that nobody should read.
            </p>
          ) : (
            <ul key="some" class="card list">
              {secrets
                .toSorted((a, b) => Number(a.places.length > 0) - Number(b.places.length > 0))
                .map((secret) => (
                  <SecretForm key={secret.name} secret={secret} actions={actions} />
                ))}
            </ul>
          )
        }
      />
      <h2 class="part">Servers</h2>
      {servers.length === 0 ? (
        <Empty key="none" icon="servers" title="No servers yet">
          <a class="button primary" href="#/add">
            Add a server
          </a>
        </Empty>
      ) : (
        <ul key="some" class="card list">
          {servers.map((server) => (
            <ServerSettings key={server.name} server={server} actions={actions} />
          ))}
        </ul>
      )}
    </div>
  );
}

export function SecretForm({
  secret: { name, places, ...users },
  actions,
}: {
  readonly secret: SecretsDocument["secrets"][number];
  readonly actions: ViewProps["actions"];
}) {
  const [value, setValue] = useState<string | undefined>(undefined);
  const field = useRef<HTMLInputElement>(null);
  const isOpen = value !== undefined;
  useEffect(() => field.current?.focus(), [isOpen]);
  const isMissing = places.length === 0;
  const isReserved = isReservedName(name);
  const usedBy = describeSecretUsers(users);
  const id = `secret-${name}`;
  const save = (event: Event): void => {
    event.preventDefault();
    if (value === undefined || value === "") return;
    void actions.setSecret(name, value).then((isDone) => {
      if (isDone) setValue(undefined);
    });
  };
  return (
    <li class="pair" data-secret={name}>
      <span>
        <span class="mono">{name}</span>{" "}
        <span class={isMissing ? "badge bad" : "badge"}>{isMissing ? "missing" : "set"}</span>{" "}
        <span class="about">
          {isReserved
            ? "used by toolmux for logins"
            : usedBy.length === 0
              ? "not used"
              : `used by ${usedBy.join(", ")}`}
        </span>
      </span>
      {isReserved ? null : value === undefined ? (
        <Button
          key="set"
          text={isMissing ? "Set" : "Replace"}
          label={`${isMissing ? "Set" : "Replace"} ${name}`}
          onPress={() => setValue("")}
        />
      ) : (
        <form key="form" class="actions" onSubmit={save}>
          <input
            ref={field}
            id={id}
            type="password"
            autocomplete="off"
            aria-label={`Value of ${name}`}
            value={value}
            onInput={({ target }) => setValue((target as HTMLInputElement).value)}
          />
          <button type="submit" class="primary">
            Store
          </button>
          <Button text="Cancel" onPress={() => setValue(undefined)} />
        </form>
      )}
    </li>
  );
}

function ServerSettings({
  server,
  actions,
}: {
  readonly server: ServerDocument;
  readonly actions: ViewProps["actions"];
}) {
  const [isDeleting, setDeleting] = useState(false);
  const { name, title, goal, origin, endpoint } = server;
  const params = { name };
  const isPersistent = origin === "manifest";
  const enable = (enabled: boolean): void =>
    void actions.send(
      "PATCH /servers/:name",
      { params, body: { enabled, ...(isPersistent && { persist: true }) } },
      `${name} is ${enabled ? "enabled" : "disabled"}.`,
    );
  const remove = (): void => {
    const query = { persist: isPersistent ? true : undefined };
    void actions.send("DELETE /servers/:name", { params, query }, `${name} is deleted.`);
  };
  return (
    <li data-settings={name}>
      <div class="pair">
        <span class="stack">
          <strong>{title ?? name}</strong> <span class="about mono clip">{endpoint ?? ""}</span>
        </span>
        {isDeleting ? (
          <span key="sure" class="actions">
            <span>
              Delete {name}
              {isPersistent ? " from the manifest" : ""}?
            </span>
            <Button text="Delete" kind="danger" label={`Delete ${name} now`} onPress={remove} />
            <Button text="Keep" onPress={() => setDeleting(false)} />
          </span>
        ) : (
          <span key="actions" class="actions">
            {goal === "down" ? (
              <Button
                key="on"
                text="Enable"
                label={`Enable ${name}`}
                onPress={() => enable(true)}
              />
            ) : (
              <Button
                key="off"
                text="Disable"
                label={`Disable ${name}`}
                onPress={() => enable(false)}
              />
            )}
            <a class="button" href={routeOfServer(name, "config")} aria-label={`Edit ${name}`}>
              Edit
            </a>
            <Button
              text="Delete"
              kind="danger"
              label={`Delete ${name}`}
              onPress={() => setDeleting(true)}
            />
          </span>
        )}
      </div>
    </li>
  );
}
