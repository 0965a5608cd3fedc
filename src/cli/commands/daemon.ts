import { nameAndIdOfClient } from "../../base/client-name.ts";
import { usageError } from "../../base/errors.ts";
import { count, formatAge } from "../../base/format.ts";
import type { SharedHubDocument } from "../../host/daemon.ts";
import { findManifests } from "../../manifest/files/discover.ts";
import { suggestName } from "../../manifest/problems.ts";
import { loadManifestOnly } from "../../operations/load-manifest.ts";
import { sanitizeLine } from "../../terminal/log.ts";
import { describeIndicator } from "../../upstream/verdict.ts";
import { DAEMON_VERBS, type CommandContext, type Invocation } from "../command.ts";
import { openLog } from "../command-log.ts";
import { describeOldHub } from "../running-hub.ts";
import { serve } from "./serve.ts";

interface DaemonOptions {
  readonly json: boolean;
  readonly "no-linger": boolean;
  readonly wait: boolean;
}

/** `toolmux daemon`: runs, starts, ends or shows the hub that the clients of this machine share for the manifest. */
export async function daemon(
  invocation: Invocation<DaemonOptions>,
  context: CommandContext,
): Promise<number> {
  const { args, options } = invocation;
  const [word = "", ...more] = args;
  const verb = DAEMON_VERBS.find((one) => one === word);
  if (verb === undefined) {
    const list = DAEMON_VERBS.join(", ");
    throw usageError(`"toolmux daemon" needs one of: ${list}.${suggestName(word, DAEMON_VERBS)}`);
  }
  if (more.length > 0) throw usageError(`toolmux daemon ${verb} takes no argument.`);
  const endsWithoutClients = !options["no-linger"];
  if (verb === "run") return run(invocation, context, endsWithoutClients);
  if (options.wait) throw usageError("--wait belongs to: toolmux daemon run");
  const { terminal } = context;
  const log = openLog(invocation, ({ message }) => terminal.note(sanitizeLine(message)));
  const manifest = await loadManifestOnly(invocation, context, log);
  const areNamed = invocation.config.length > 0;
  const { describeSharedHubs, restartSharedHub, startSharedHub, stopSharedHubs } =
    await import("../../host/daemon.ts");
  switch (verb) {
    case "start": {
      const { hub, wasRunning } = await startSharedHub(
        manifest,
        context,
        endsWithoutClients,
        areNamed,
      );
      if (options.json) terminal.printJson({ pid: hub.pid, wasRunning });
      else if (wasRunning) terminal.printWrapped(`the shared hub runs already: toolmux ${hub.pid}`);
      else terminal.printWrapped(`started the shared hub: toolmux ${hub.pid}`);
      return 0;
    }
    case "stop": {
      const stopped = (await stopSharedHubs(manifest, context, false)).map(({ pid }) => pid);
      if (options.json) terminal.printJson({ stopped });
      else if (stopped.length === 0) terminal.printWrapped("no shared hub of this manifest runs");
      else
        terminal.printWrapped(
          `stopped toolmux ${stopped.join(", ")}; the next message of an attached client starts it again`,
        );
      return 0;
    }
    case "restart": {
      const { stopped, hub } = await restartSharedHub(
        manifest,
        context,
        endsWithoutClients,
        areNamed,
      );
      const pids = stopped.map(({ pid }) => pid);
      if (options.json) terminal.printJson({ stopped: pids, pid: hub.pid });
      else
        terminal.printWrapped(
          `${pids.length === 0 ? "started the shared hub" : `restarted the shared hub (before: toolmux ${pids.join(", ")})`}: toolmux ${hub.pid}`,
        );
      return 0;
    }
    case "status": {
      const hubs = await describeSharedHubs(manifest, context);
      if (options.json) terminal.printJson({ hubs });
      else if (hubs.length === 0) terminal.printWrapped("no shared hub of this manifest runs");
      else for (const hub of hubs) printHub(hub, context);
      return hubs.length > 0 ? 0 : 3;
    }
  }
}

/** `toolmux daemon run`: the shared hub in the foreground. */
async function run(
  invocation: Invocation<DaemonOptions>,
  context: CommandContext,
  endsWithoutClients: boolean,
): Promise<number> {
  if (invocation.options.wait) {
    const { env, cwd, platform } = context;
    const found = await findManifests({ files: invocation.config, env, cwd, platform });
    const { untilNoSharedHub } = await import("../../host/daemon.ts");
    const files = found.files.map(({ path }) => path);
    await untilNoSharedHub(files, context, () =>
      openLog(invocation)("info", "a shared hub runs already: this one waits until it has ended"),
    );
  }
  const options = {
    http: undefined,
    stdio: false,
    mode: undefined,
    expose: undefined,
    servers: undefined,
    dashboard: false,
    record: undefined,
    "record-limit": undefined,
    approval: undefined,
    "approve-all": false,
    shared: false,
    private: true,
    daemon: { endsWithoutClients },
  };
  return serve({ ...invocation, options }, context);
}

function printHub(hub: SharedHubDocument, { terminal }: CommandContext): void {
  const { pid, version, startedAt, counts, clients } = hub;
  const old = describeOldHub(hub);
  const age = old === undefined ? "" : `, ${old}`;
  const { servers, tools, calls } = counts;
  terminal.printWrapped(
    sanitizeLine(
      `toolmux ${pid}, version ${version}${age}, started ${formatAge(Date.now() - startedAt)}`,
    ),
  );
  terminal.printWrapped(
    sanitizeLine(
      `  servers: ${describeIndicator(servers)}; ${count(tools, "tool")}, ${count(calls, "call")} running`,
    ),
  );
  const attached = clients.filter(({ transport }) => transport === "shared");
  terminal.printWrapped(`  ${count(attached.length, "client")} attached`);
  for (const client of attached)
    terminal.printWrapped(sanitizeLine(`    ${nameAndIdOfClient(client)}`));
}
