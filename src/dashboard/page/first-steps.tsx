import type { ViewProps } from "./actions.ts";
import type { ClientAppDocument } from "./documents.ts";
import { count } from "./format.ts";
import { Button } from "./parts.tsx";
import { routeTo, valueOf } from "./state.ts";

/**
 * What a person does first: import the servers of MCP clients, add others, connect clients. Says what was found on this
 * machine. Without a hub, each step starts one.
 */
export function FirstSteps({ state, actions }: ViewProps) {
  const isRunning = state.connection.kind !== "none";
  const machine = valueOf(state.machine);
  const apps = (isRunning ? valueOf(state.apps) : machine?.clients) ?? [];
  const present = apps.filter(({ exists }) => exists);
  const withServers = present.filter(
    ({ servers, problem }) => servers > 0 && problem === undefined,
  );
  const go = (view: "connect" | "add"): void => {
    if (isRunning) location.hash = routeTo(view);
    else actions.startHub(view);
  };
  const isOff = !isRunning && machine?.canStart !== true;
  return (
    <section class="card panel" aria-labelledby="first">
      <div class="pair">
        <div>
          <h2 id="first">{isRunning ? "Three steps to your first call" : "No hub is running"}</h2>
          <p class="about">
            {isRunning
              ? "This hub has no servers yet."
              : "A hub runs your MCP servers, and makes them look like one. Start one here, or let an MCP client that uses toolmux start its own."}
          </p>
        </div>
        {!isRunning && (
          <Button
            key="start"
            kind="primary"
            text={state.isStarting ? "Starting…" : "Start a hub"}
            isDisabled={isOff || state.isStarting}
            onPress={() => actions.startHub("overview")}
          />
        )}
      </div>
      <ol class="plain cards steps">
        <li class="panel card">
          <h3>1. Import</h3>
          <p class="about">{describeFound(withServers)}</p>
          <p class="actions">
            <Button
              text="Import servers"
              kind={isRunning && withServers.length > 0 ? "primary" : ""}
              isDisabled={isOff || withServers.length === 0}
              onPress={() => go("connect")}
            />
          </p>
        </li>
        <li class="panel card">
          <h3>2. Add</h3>
          <p class="about">
            Search the public directories for a server, or enter your own command or URL. It is
            tried before it is kept.
          </p>
          <p class="actions">
            <Button
              text="Add a server"
              kind={isRunning && withServers.length === 0 ? "primary" : ""}
              isDisabled={isOff}
              onPress={() => go("add")}
            />
          </p>
        </li>
        <li class="panel card">
          <h3>3. Connect</h3>
          <p class="about">
            {present.length === 0
              ? "No file of an MCP client that toolmux knows was found here. Copy an entry into the file of yours."
              : `${listOf(present.map(({ title }) => title))} ${present.length === 1 ? "is" : "are"} on this machine. Give ${present.length === 1 ? "it" : "them"} one entry for all servers.`}
          </p>
          <p class="actions">
            <Button text="Connect a client" isDisabled={isOff} onPress={() => go("connect")} />
          </p>
        </li>
      </ol>
      {isOff && (
        <p key="how" class="about">
          This page cannot start a hub. Start one in a terminal:{" "}
          <code>toolmux serve --http 8700</code>
        </p>
      )}
    </section>
  );
}

function describeFound(apps: readonly ClientAppDocument[]): string {
  if (apps.length === 0) return "No servers of MCP clients were found on this machine.";
  const found = apps.map(({ title, servers }) => `${title} has ${count(servers, "server")}`);
  return `${listOf(found)}. They can move into toolmux, and back.`;
}

function listOf(texts: readonly string[]): string {
  if (texts.length < 2) return texts.join("");
  return `${texts.slice(0, -1).join(", ")} and ${texts.at(-1)}`;
}
