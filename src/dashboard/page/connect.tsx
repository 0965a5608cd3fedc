import { useState } from "hono/jsx/dom";
import type { ViewProps } from "./app.tsx";
import type { ClientAppDocument } from "./documents.ts";
import { count } from "./format.ts";
import { Button, Choice, copyText, Header, Ready } from "./parts.tsx";

/** How a client writes a server down: the key of its table of servers, and what an entry looks like. */
const FORMATS: Readonly<Record<string, string>> = {
  vscode: "servers",
  "vscode-insiders": "servers",
  zed: "context_servers",
  amp: "amp.mcpServers",
  opencode: "mcp",
};

/** The entry of toolmux in the file of a client, to copy. @param url of the hub; undefined: the client starts toolmux */
export function snippetFor(app: string, url: string | undefined): string {
  if (app === "codex") {
    const body =
      url === undefined ? 'command = "toolmux"\nargs = ["serve"]' : `url = ${JSON.stringify(url)}`;
    return `[mcp_servers.toolmux]\n${body}\n`;
  }
  const isCode = app.startsWith("vscode");
  const start =
    app === "opencode"
      ? { type: "local", command: ["toolmux", "serve"] }
      : { ...(isCode && { type: "stdio" }), command: "toolmux", args: ["serve"] };
  const key =
    app === "windsurf"
      ? "serverUrl"
      : app === "gemini-cli" || app === "qwen-code"
        ? "httpUrl"
        : "url";
  const connect = {
    ...(app === "opencode" && { type: "remote" }),
    ...((isCode || app === "claude-code") && { type: "http" }),
    [key]: url,
  };
  const entry = { toolmux: url === undefined ? start : connect };
  return JSON.stringify({ [FORMATS[app] ?? "mcpServers"]: entry }, null, 2);
}

export function ConnectView({ state, actions }: ViewProps) {
  const [way, setWay] = useState<"stdio" | "http">("stdio");
  const [app, setApp] = useState("cursor");
  const url = state.hub?.endpoints.find((endpoint) => endpoint !== "stdio");
  const snippet = snippetFor(app, way === "http" ? url : undefined);
  return (
    <div>
      <Header
        title="Connect a client"
        about="Put toolmux into an MCP client: it sees all your servers through one entry."
      />
      <Ready
        of={state.apps}
        what="a list of MCP clients"
        icon="connect"
        draw={(apps) => (
          <div>
            <section class="card form">
              <h2>Entry to copy</h2>
              <div class="filters">
                <Choice
                  label="Client"
                  value={app}
                  options={apps.map(({ name, title }) => [name, title])}
                  onChoose={setApp}
                />
                {url !== undefined && (
                  <Choice
                    key="way"
                    label="It"
                    value={way}
                    options={[
                      ["stdio", "starts toolmux itself"],
                      ["http", "connects to this hub"],
                    ]}
                    onChoose={setWay}
                  />
                )}
              </div>
              <p class="about mono">{apps.find(({ name }) => name === app)?.file ?? ""}</p>
              <pre tabindex={0}>{snippet}</pre>
              <p class="actions">
                <Button
                  text="Copy"
                  onPress={() => void copyText(snippet).then(() => actions.notify("Copied."))}
                />
              </p>
            </section>
            <h2>Or let toolmux write it</h2>
            <ul class="plain card">
              {apps.toSorted(byUse).map((one) => (
                <App key={one.name} app={one} actions={actions} />
              ))}
            </ul>
            <p class="hint about">
              To take over the servers of a client: <code>toolmux install cursor --replace</code>,
              or only import them: <code>toolmux import cursor</code>.
            </p>
          </div>
        )}
      />
    </div>
  );
}

/** The clients that have a file come first. */
function byUse(a: ClientAppDocument, b: ClientAppDocument): number {
  return Number(b.exists) - Number(a.exists);
}

function App({
  app: { name, title, file, exists, installed, servers, problem },
  actions,
}: {
  readonly app: ClientAppDocument;
  readonly actions: ViewProps["actions"];
}) {
  return (
    <li class="pair" data-app={name}>
      <span class="who">
        <strong>{title}</strong>{" "}
        <span class="about">
          {problem ??
            (installed
              ? "toolmux is in its file"
              : exists
                ? `${count(servers, "server")} of its own`
                : "not found on this machine")}
        </span>
        <span class="about mono clip">{file ?? ""}</span>
      </span>
      <span class="actions">
        {installed ? (
          <Button
            key="undo"
            text="Undo"
            label={`Take toolmux out of ${title}`}
            onPress={() => actions.install(name, "undo", title)}
          />
        ) : (
          <Button
            key="install"
            text="Install"
            kind={exists ? "primary" : ""}
            label={`Install toolmux in ${title}`}
            isDisabled={problem !== undefined}
            onPress={() => actions.install(name, "install", title)}
          />
        )}
      </span>
    </li>
  );
}
