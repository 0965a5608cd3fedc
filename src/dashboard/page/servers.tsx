import { memo, useState } from "hono/jsx/dom";
import type { Actions, ViewProps } from "./actions.ts";
import type { ServerDocument, ToolNote } from "./documents.ts";
import {
  count,
  formatAgo,
  formatBytes,
  formatDuration,
  formatNumber,
  indicatorOf,
  matchesWords,
  statusText,
  toneOf,
  toolBadge,
} from "./format.ts";
import {
  Button,
  Dot,
  Drawer,
  Empty,
  Facts,
  Header,
  Menu,
  type MenuItem,
  Ready,
  Rows,
  SearchField,
  useNarrow,
} from "./parts.tsx";
import { routeTo, serversOf, valueOf } from "./state.ts";

/** Number of servers above which there is a field to search them. */
const MANY = 8;

export function ServersView({ state, actions }: ViewProps) {
  const [words, setWords] = useState("");
  const isNarrow = useNarrow();
  const servers = serversOf(state);
  const failed = servers.filter((server) => server.state === "failed").length;
  const shown = servers.filter(({ name, title, endpoint }) =>
    matchesWords(words, name, title, endpoint),
  );
  const item = servers.find(({ name }) => name === state.route.item);
  return (
    <div>
      <Header title="Servers" about={servers.length === 0 ? undefined : indicatorOf(servers).title}>
        {failed > 0 && (
          <Button
            key="failed"
            kind="primary"
            text={`Reconnect failed (${failed})`}
            onPress={() => actions.reconnectFailed()}
          />
        )}
        {servers.length > MANY && (
          <SearchField key="search" label="Search servers" value={words} onInput={setWords} />
        )}
        <a key="add" class="button" href="#/add">
          Add a server
        </a>
      </Header>
      <Ready
        of={state.servers}
        what="a list of servers"
        icon="servers"
        draw={() =>
          servers.length === 0 ? (
            <NoServers state={state} actions={actions} />
          ) : (
            <Rows
              items={shown}
              height={isNarrow ? 92 : 68}
              label="Servers"
              class="card"
              keyOf={({ name }) => name}
              draw={(server) => (
                <ServerRow
                  server={server}
                  status={statusText(server, state.now)}
                  actions={actions}
                />
              )}
            />
          )
        }
      />
      {item !== undefined && (
        <ServerDrawer
          key={item.name}
          server={item}
          now={state.now}
          notes={valueOf(state.tools)?.notes ?? []}
          actions={actions}
        />
      )}
    </div>
  );
}

/** Shown if the hub has no servers. Offers to import the servers of the MCP client that has the most servers. */
function NoServers({ state, actions }: ViewProps) {
  const [app] = (valueOf(state.apps) ?? [])
    .filter(({ servers, installed }) => servers > 0 && !installed)
    .toSorted((a, b) => b.servers - a.servers);
  return (
    <Empty icon="servers" title="No servers yet">
      <p>
        {app === undefined
          ? "Import them from an MCP client, or add one."
          : `${app.title} has ${count(app.servers, "server")}. Its file then has toolmux instead, and this can be undone.`}
      </p>
      <p class="actions">
        {app === undefined ? (
          <a key="connect" class="button primary" href="#/connect">
            Import them
          </a>
        ) : (
          <Button
            key="import"
            kind="primary"
            text={`Import them from ${app.title}`}
            onPress={() => actions.install(app.name, "replace", app.title)}
          />
        )}
        <a class="button" href="#/add">
          Add a server
        </a>
      </p>
    </Empty>
  );
}

interface RowProps {
  readonly server: ServerDocument;
  readonly status: string;
  readonly actions: Actions;
}

const ServerRow = memo(({ server, status, actions }: RowProps) => {
  const { name, title, icon, state, endpoint, inFlight } = server;
  const action = actionFor(server, actions);
  return (
    <div class="row server" data-server={name} data-state={state}>
      <Dot tone={toneOf(state)} />
      <div class="stack">
        <a class="name clip" href={routeTo("servers", name)}>
          {icon !== undefined && isCharacter(icon) ? `${icon} ` : ""}
          {title ?? name}
        </a>
        <span class={`about clip ${toneOf(state)}`} title={status}>
          {status}
        </span>
      </div>
      <div class="stack what">
        <span class="about mono clip" title={endpoint}>
          {endpoint ?? ""}
        </span>
        <span class="actions">
          <span class={state === "connected" ? "badge" : "badge none"}>{toolBadge(server)}</span>
          <span class={inFlight > 0 ? "badge busy" : "badge none"}>{count(inFlight, "call")}</span>
        </span>
      </div>
      <div class="actions">
        {action !== undefined && (
          <Button
            key="action"
            text={action.text}
            label={`${action.text} ${name}`}
            onPress={action.onSelect}
          />
        )}
        <Menu key="menu" label={`Actions for ${name}`} items={menuFor(server, actions)} />
      </div>
    </div>
  );
});

/** Whether an icon is a character. Otherwise, it may be the URL of a picture, which the page does not load. */
function isCharacter(icon: string): boolean {
  return icon.length <= 8 && !icon.includes(":");
}

function needsLogin({ state, lastError, progress }: ServerDocument): boolean {
  if (state === "authenticating") return progress?.url === undefined;
  return (state === "failed" || state === "reconnecting") && lastError?.code === "unauthorized";
}

/** The text of the action that a person has to take in the view Configure before the server can run. */
function fixLabelOf({ state, lastError }: ServerDocument): string | undefined {
  if (state !== "failed") return undefined;
  if (lastError?.code === "valueMissing") return "Set the secret";
  return lastError?.code === "serverInvalid" ? "Configure" : undefined;
}

/** The action that helps most in the server's state. */
function actionFor(server: ServerDocument, actions: Actions): MenuItem | undefined {
  const items = menuFor(server, actions);
  const item = (text: string): MenuItem | undefined => items.find((one) => one.text === text);
  if (needsLogin(server)) return item("Log in");
  if (fixLabelOf(server) !== undefined) return items[0];
  switch (server.state) {
    case "failed":
    case "reconnecting":
      return item("Retry");
    case "connecting":
    case "authenticating":
      return item("Cancel");
    case "notStarted":
    case "idle":
    case "stopped":
    case "disabled":
      return item("Start");
    case "connected":
    case "stopping":
      return undefined;
  }
}

function menuFor(server: ServerDocument, actions: Actions): readonly MenuItem[] {
  const { name, state, transport } = server;
  const verb = (text: string, action: Parameters<Actions["server"]>[1]): MenuItem => ({
    text,
    onSelect: () => actions.server(name, action),
  });
  const isRetriable = state === "failed" || state === "reconnecting";
  const isAttempt =
    state === "connecting" || state === "authenticating" || state === "reconnecting";
  const isStopped = ["notStarted", "idle", "stopped", "disabled"].includes(state);
  const isRemote = transport !== undefined && transport !== "stdio";
  const fixLabel = fixLabelOf(server);
  return [
    ...(fixLabel === undefined
      ? []
      : [{ text: fixLabel, onSelect: () => void (location.hash = routeTo("configure")) }]),
    ...(isRetriable ? [verb("Retry", "reconnect")] : []),
    ...(isAttempt ? [verb("Cancel", "cancel")] : []),
    ...(isStopped ? [verb("Start", "start")] : []),
    ...(isRemote || needsLogin(server) ? [verb("Log in", "login")] : []),
    ...(state === "connected" ? [verb("Refresh", "refresh"), verb("Restart", "reconnect")] : []),
    { text: "View logs", onSelect: () => void (location.hash = routeTo("logs", name)) },
    { text: "Details", onSelect: () => void (location.hash = routeTo("servers", name)) },
    ...(state === "connected" ? [verb("Disconnect", "stop")] : []),
  ];
}

interface DrawerProps {
  readonly server: ServerDocument;
  readonly now: number;
  readonly notes: readonly ToolNote[];
  readonly actions: Actions;
}

/** The number of the attempt to connect, and how many are made; undefined unless another one follows. */
function attemptOf({ state, attempt = 1, maxAttempts }: ServerDocument): string | undefined {
  if (state !== "reconnecting") return undefined;
  return maxAttempts === undefined ? `${attempt}` : `${attempt} of ${maxAttempts}`;
}

function ServerDrawer({ server, now, notes, actions }: DrawerProps) {
  const { name, title, description, state, lastError, remedies = [], connections } = server;
  const hidden = notes.filter((note) => note.server === name);
  const isTrouble = lastError !== undefined && state !== "connected";
  const url = state === "authenticating" ? server.progress?.url : undefined;
  return (
    <Drawer title={title ?? name} onClose={() => void (location.hash = routeTo("servers"))}>
      {description !== undefined && (
        <p key="description" class="about">
          {description}
        </p>
      )}
      <p class="state-line">
        <Dot tone={toneOf(state)} />
        <span>{statusText(server, now)}</span>
      </p>
      {url !== undefined && isWebPage(url) && (
        <p key="login">
          <a class="button primary" href={url} target="_blank" rel="noreferrer noopener">
            Open the login page
          </a>
        </p>
      )}
      <p class="actions">
        {menuFor(server, actions)
          .filter(({ text }) => text !== "Details")
          .map(({ text, onSelect }) => (
            <Button key={text} text={text} onPress={onSelect} />
          ))}
      </p>
      {isTrouble && (
        <section key="trouble" class="banner bad panel">
          <h3>{state === "failed" ? "Why it failed" : "Its last error"}</h3>
          <p class="pre">{lastError.message}</p>
          {remedies.length > 0 && (
            <ul key="remedies">
              {remedies.map((remedy) => (
                <li key={remedy}>{remedy}</li>
              ))}
            </ul>
          )}
          {lastError.stderr !== undefined && (
            <pre key="stderr" tabindex={0} aria-label="The last lines of its stderr">
              {lastError.stderr.join("\n")}
            </pre>
          )}
        </section>
      )}
      <Facts
        of={{
          Name: name,
          "Command or URL": server.endpoint,
          From: server.origin === "manifest" ? "the manifest" : "a command; gone when the hub ends",
          Transport: server.transport,
          Protocol: server.protocolVersion && `${server.protocolVersion} (${server.era ?? ""})`,
          Implementation: [server.implementation?.name, server.implementation?.version]
            .filter(Boolean)
            .join(" "),
          Attempt: attemptOf(server),
          Since: server.since && formatAgo(server.since, now),
          "Started in": server.startDuration && formatDuration(server.startDuration),
          Tools: toolBadge(server),
          Prompts: server.prompts,
          Resources: server.resources,
          Calls: formatNumber(server.calls),
          "Last tool": server.lastTool,
          Process: server.pid,
          "Context cost": server.tokens && `about ${server.tokens} tokens (estimated)`,
          Memory: server.memory && formatBytes(server.memory),
        }}
      />
      {connections.length > 1 && (
        <section key="connections">
          <h3>{count(connections.length, "connection")}</h3>
          <ul class="plain">
            {connections.map((connection) => (
              <li key={connection.id} class="state-line">
                <Dot tone={toneOf(connection.state)} />
                <span>{statusText(connection, now)}</span>
                <span class="about">
                  {[connection.separation?.text, connection.client, ...(connection.clients ?? [])]
                    .filter(Boolean)
                    .join(", ")}
                </span>
              </li>
            ))}
          </ul>
        </section>
      )}
      {hidden.length > 0 && (
        <section key="hidden">
          <h3>{count(hidden.length, "tool")} hidden or changed</h3>
          <ul class="plain">
            {hidden.map(({ tool, text }) => (
              <li key={`${tool} ${text}`}>
                <span class="mono">{tool}</span> <span class="about">{text}</span>
              </li>
            ))}
          </ul>
        </section>
      )}
    </Drawer>
  );
}

function isWebPage(url: string): boolean {
  return /^https?:\/\//i.test(url);
}
