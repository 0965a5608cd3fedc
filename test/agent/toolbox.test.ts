import { HubTools, McpToolbox, type Toolbox } from "../../src/agent/toolbox.ts";
import { HubClient } from "../../src/frontend/hub-client.ts";
import type { Transport } from "../../src/transport/transport.ts";
import { toolboxContract } from "../contract/toolbox.ts";
import {
  callRequest,
  initialize,
  ScriptedServer,
  setUpHub,
  type Peer,
} from "../fixtures/memory-hub.ts";
import { setUpPluginHub } from "../fixtures/plugin-hub.ts";
import { pluginWithHost } from "../plugins/plugin-hub.ts";
import type { Host, ToolCall } from "../../src/plugin/plugin.ts";

toolboxContract("over MCP", async (servers, run) => {
  const { hub } = setUpHub(servers);
  const controller = new AbortController();
  const { serverInfo } = hub;
  const accept = (transport: Transport, signal: AbortSignal): Promise<void> =>
    hub.accept(transport, signal, undefined, "control");
  const client = await HubClient.connect({ serverInfo, accept }, controller.signal);
  await hub.settled();
  const origins = () => {
    const { entries } = hub.catalog.tools;
    return Promise.resolve(
      new Map(entries.map(({ name, server, remoteName: tool }) => [name, { server, tool }])),
    );
  };
  try {
    await run(new McpToolbox(client, origins));
  } finally {
    await client.close();
    await hub.close();
  }
});

/** A client's call that stays open while a toolbox for it is used. */
async function openCall(client: Peer, called: Promise<ToolCall>): Promise<ToolCall> {
  client.send(callRequest("outer", "host__outer"));
  return called;
}

toolboxContract("in the hub, for a client's call", async (servers, run) => {
  const called = Promise.withResolvers<ToolCall>();
  const done = Promise.withResolvers<void>();
  const hosts: Host[] = [];
  const plugin = pluginWithHost("agents", (host) => {
    hosts.push(host);
    return {
      call: (next, { server }) =>
        server === "host"
          ? async (call) => {
              called.resolve(call);
              await done.promise;
              return call.answer({ content: [] });
            }
          : next,
    };
  });
  const all = { ...servers, host: new ScriptedServer("outer") };
  const { hub, client } = await setUpPluginHub([plugin], all);
  await initialize(client);
  await hub.settled();
  const call = await openCall(client, called.promise);
  const [host] = hosts;
  try {
    if (host === undefined) throw new Error("The plugin was not set up.");
    const toolbox: Toolbox = new HubTools(host).for(call);
    await run(toolbox);
  } finally {
    done.resolve();
    await hub.close();
  }
});
