import { useEffect, useState } from "hono/jsx/dom";
import type { ViewProps } from "./actions.ts";
import type { ClientAppDocument } from "./documents.ts";
import { count } from "./format.ts";
import { Button, Choice, copyText, Header, Ready } from "./parts.tsx";
import { LOADING } from "./state.ts";

export function ConnectView({ state, actions }: ViewProps) {
  const [way, setWay] = useState<"stdio" | "http">("stdio");
  const [app, setApp] = useState("cursor");
  const url = state.hub?.endpoints.find((endpoint) => URL.canParse(endpoint));
  const http = way === "http" ? url : undefined;
  useEffect(() => actions.showSnippet(app, http), [app, http]);
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
            <section class="card panel">
              <h2>Entry to copy</h2>
              <div class="actions">
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
              <Ready
                of={state.snippet?.loaded ?? LOADING}
                what="the entry of a client"
                icon="connect"
                draw={({ file, text, next }) => (
                  <div class="flow">
                    <p class="about">
                      For <span class="mono break">{file}</span>. Then: {next}
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
            <h2 class="part">Or let toolmux write it</h2>
            <ul class="card list">
              {apps.toSorted(byUse).map((one) => (
                <App key={one.name} app={one} actions={actions} />
              ))}
            </ul>
          </div>
        )}
      />
    </div>
  );
}

/** Sorts the clients that have a configuration file first. */
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
      <span class="stack">
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
        {!installed && servers > 0 && problem === undefined && (
          <Button
            key="replace"
            text={`Import its ${count(servers, "server")}`}
            label={`Import its ${count(servers, "server")}, and put toolmux in their place in ${title}`}
            onPress={() => actions.install(name, "replace", title)}
          />
        )}
        {installed ? (
          <Button
            key="undo"
            text="Undo"
            label={`Undo: take toolmux out of ${title}`}
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
