import { useEffect, useState } from "hono/jsx/dom";
import type { ViewProps } from "./actions.ts";
import type { ClientAppDocument, InstallationDocument } from "./documents.ts";
import { count } from "./format.ts";
import { Button, Choice, copyText, Empty, Header, Ready } from "./parts.tsx";
import { type DashboardState, type InstallVerb, LOADING, valueOf } from "./state.ts";
import { MiddleCut } from "./table.tsx";

export function ConnectView({ state, actions }: ViewProps) {
  const apps = valueOf(state.apps);
  const named = apps?.find(({ name }) => name === state.route.item);
  // A link to a client, such as that of the first steps, shows at once what an import would change.
  useEffect(() => {
    if (named !== undefined && named.servers > 0 && !named.installed && !isDemo(state))
      actions.preview(named.name, "replace");
    return () => actions.preview("", undefined);
  }, [named?.name]);
  return (
    <div>
      <Header
        title="Connect a client"
        about="Put toolmux into an MCP client: it sees all your servers through one entry."
      />
      {isDemo(state) ? (
        <Empty key="demo" icon="connect" title="This is a demo">
          <p>
            Its servers and its manifest are gone when it ends. So no MCP client gets an entry of
            it, and nothing is imported. To use toolmux with your own servers, start a hub:
          </p>
          <pre tabindex={0}>toolmux dashboard</pre>
        </Empty>
      ) : (
        <Ready
          key="clients"
          of={state.apps}
          what="a list of MCP clients"
          icon="connect"
          draw={(all) => <Apps apps={all} state={state} actions={actions} />}
        />
      )}
    </div>
  );
}

function isDemo({ hub }: DashboardState): boolean {
  return hub?.demo === true;
}

function Apps({
  apps,
  state,
  actions,
}: ViewProps & { readonly apps: readonly ClientAppDocument[] }) {
  const present = apps.filter(({ exists }) => exists);
  const others = apps.filter(({ exists }) => !exists);
  const list = (some: readonly ClientAppDocument[]) => (
    <ul class="card list">
      {some.map((app) => (
        <App
          key={app.name}
          app={app}
          preview={state.preview?.app === app.name ? state.preview : undefined}
          actions={actions}
        />
      ))}
    </ul>
  );
  return (
    <div>
      {present.length > 0 ? (
        <section key="present">
          <h2 class="part">On this machine</h2>
          {list(present)}
        </section>
      ) : (
        <p key="none" class="card panel about">
          No file of an MCP client that toolmux knows was found on this machine.
        </p>
      )}
      {others.length > 0 && (
        <details key="others" class="part" open={present.length === 0 && others.length < 3}>
          <summary>{count(others.length, "other client")} that toolmux knows</summary>
          {list(others)}
        </details>
      )}
      <h2 class="part">Or copy the entry yourself</h2>
      <Snippet apps={[...present, ...others]} state={state} actions={actions} />
    </div>
  );
}

/** The entry of toolmux for a client, to copy it. */
function Snippet({
  apps,
  state,
  actions,
}: ViewProps & { readonly apps: readonly ClientAppDocument[] }) {
  const [way, setWay] = useState<"stdio" | "http">("stdio");
  const [chosen, setChosen] = useState<string | undefined>(undefined);
  const app = chosen ?? apps[0]?.name ?? "cursor";
  const url = state.hub?.endpoints.find((endpoint) => URL.canParse(endpoint));
  const http = way === "http" ? url : undefined;
  useEffect(() => actions.showSnippet(app, http), [app, http]);
  return (
    <section class="card panel" aria-label="The entry to copy">
      <div class="actions">
        <Choice
          label="Client"
          value={app}
          options={apps.map(({ name, title }) => [name, title])}
          onChoose={setChosen}
        />
        {url !== undefined && (
          <Choice
            key="way"
            label="The client"
            value={way}
            options={[
              ["stdio", "starts toolmux itself"],
              ["http", "connects to this hub over HTTP"],
            ]}
            onChoose={setWay}
          />
        )}
      </div>
      <Ready
        of={state.snippet?.loaded ?? LOADING}
        what="the entry of a client"
        icon="connect"
        draw={({ file, text, next }) => (
          <div class="flow">
            <p class="about">
              Put this into <span class="mono break">{file}</span>. Then: {next}
            </p>
            <pre tabindex={0}>{text}</pre>
            <p class="actions">
              <Button
                text="Copy"
                onPress={() => void copyText(text).then(() => actions.notify("Copied."))}
              />
            </p>
          </div>
        )}
      />
    </section>
  );
}

function App({
  app: { name, title, file, exists, installed, servers, problem },
  preview,
  actions,
}: {
  readonly app: ClientAppDocument;
  readonly preview: DashboardState["preview"];
  readonly actions: ViewProps["actions"];
}) {
  const show = (verb: InstallVerb): void => actions.preview(name, verb);
  return (
    <li data-app={name}>
      <div class="pair">
        <span class="stack">
          <strong>{title}</strong>{" "}
          <span class="about">
            {problem ??
              [
                installed ? "has toolmux; if it does not show the tools, restart it" : undefined,
                exists
                  ? servers > 0 || !installed
                    ? servers === 0
                      ? "no servers of its own"
                      : `${count(servers, "server")} of its own`
                    : undefined
                  : "not found on this machine",
              ]
                .filter(Boolean)
                .join(", ")}
          </span>
          <MiddleCut class="about" text={file ?? ""} />
        </span>
        <span class="actions">
          {servers > 0 && problem === undefined && (
            <Button
              key="replace"
              text={`Import its ${count(servers, "server")}…`}
              label={`Import its ${count(servers, "server")}… of ${title}, and put toolmux in their place`}
              onPress={() => show("replace")}
            />
          )}
          {installed ? (
            <Button
              key="undo"
              text="Undo…"
              label={`Undo… take toolmux out of ${title}`}
              onPress={() => show("undo")}
            />
          ) : (
            <Button
              key="install"
              text="Install…"
              kind={exists ? "primary" : ""}
              label={`Install… toolmux in ${title}`}
              isDisabled={problem !== undefined}
              onPress={() => show("install")}
            />
          )}
        </span>
      </div>
      {preview !== undefined && (
        <Preview key="preview" preview={preview} title={title} actions={actions} />
      )}
    </li>
  );
}

/** The change of a client's file, which is written only when a person says so. */
function Preview({
  preview: { app, verb, loaded },
  title,
  actions,
}: {
  readonly preview: NonNullable<DashboardState["preview"]>;
  readonly title: string;
  readonly actions: ViewProps["actions"];
}) {
  const cancel = (
    <Button key="cancel" text="Cancel" onPress={() => actions.preview(app, undefined)} />
  );
  return (
    <section class="panel preview" aria-label={`The change of the file of ${title}`}>
      <Ready
        of={loaded}
        what="a preview of the change"
        icon="connect"
        draw={(document) => (
          <div class="flow">
            <h3>{titleOf(verb, title)}</h3>
            <Change document={document} />
            <p class="actions">
              {document.action !== "none" && (
                <Button
                  key="write"
                  kind="primary"
                  text={verb === "undo" ? "Undo it" : "Write the file"}
                  label={`${verb === "undo" ? "Undo it: the change of the file" : "Write the file"} of ${title}`}
                  onPress={() => actions.install(app, verb, title)}
                />
              )}
              {cancel}
            </p>
          </div>
        )}
      />
      {loaded.kind === "ready" ? undefined : <p class="actions">{cancel}</p>}
    </section>
  );
}

function titleOf(verb: InstallVerb, title: string): string {
  if (verb === "undo") return `Take toolmux out of ${title}`;
  return verb === "replace" ? `Import the servers of ${title}` : `Install toolmux in ${title}`;
}

function Change({
  document: { file, action, change, imported = [], doubled = [] },
}: {
  readonly document: InstallationDocument;
}) {
  if (action === "none") return <p>Nothing would change in the file.</p>;
  return (
    <div class="flow">
      <p class="about">{whatHappens(action, imported.length)}</p>
      {change !== undefined && (
        <pre key="change" class="diff" tabindex={0} aria-label="The difference">
          <span class="about">
            {file}
            {change.line === undefined ? "" : `:${change.line}`}
            {"\n"}
          </span>
          {change.removed.map((name) => (
            <del key={`- ${name}`}>{`- "${name}"\n`}</del>
          ))}
          {change.added.map((line, at) => (
            <ins key={`${at} ${line}`}>{`+ ${line}\n`}</ins>
          ))}
        </pre>
      )}
      {imported.length > 0 && (
        <p key="imported">
          These servers move into the manifest of this hub: {imported.join(", ")}.
        </p>
      )}
      {doubled.length > 0 && (
        <p key="doubled">
          The manifest has {doubled.join(", ")}, too: the client would see their tools twice. An
          import avoids that.
        </p>
      )}
    </div>
  );
}

function whatHappens(action: InstallationDocument["action"], imported: number): string {
  if (action === "restore") return "The file becomes what it was before toolmux was put into it.";
  if (action === "remove") return "The file is deleted: it did not exist before.";
  if (action === "edit")
    return "Only the entry of toolmux is taken out, because the file was changed since.";
  const backup = "A copy of the file is kept beside it.";
  return imported > 0
    ? `The servers of the client are replaced by toolmux, which runs them. ${backup}`
    : `toolmux is added to the servers of the client. ${backup}`;
}
