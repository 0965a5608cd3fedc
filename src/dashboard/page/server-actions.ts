import type { Actions } from "./actions.ts";
import type { ServerDocument } from "./documents.ts";
import type { MenuItem } from "./parts.tsx";
import { routeOfServer, routeTo } from "./state.ts";

/** What a person can do with a server in its state. The best of it is offered beside the server, the rest in a menu. */

function needsLogin({ state, lastError, progress }: ServerDocument): boolean {
  if (state === "authenticating") return progress?.url === undefined;
  return (state === "failed" || state === "reconnecting") && lastError?.code === "unauthorized";
}

/** What has to be mended in the settings before the server can run. */
function fixFor({ name, state, lastError }: ServerDocument): MenuItem | undefined {
  if (state !== "failed") return undefined;
  const go = (text: string, to: string): MenuItem => ({
    text,
    onSelect: () => void (location.hash = to),
  });
  if (lastError?.code === "valueMissing") return go("Set the secret", routeTo("configure"));
  const isSetting = lastError?.code === "serverInvalid" || lastError?.code === "commandNotFound";
  return isSetting ? go("Edit", routeOfServer(name, "config")) : undefined;
}

/** The action that helps most. */
export function bestActionFor(server: ServerDocument, actions: Actions): MenuItem | undefined {
  const items = actionsFor(server, actions);
  const item = (text: string): MenuItem | undefined => items.find((one) => one.text === text);
  if (needsLogin(server)) return item("Log in");
  const fix = fixFor(server);
  if (fix !== undefined) return fix;
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
      return item("Start");
    case "disabled":
      return item("Enable");
    case "connected":
    case "stopping":
      return undefined;
  }
}

export function actionsFor(server: ServerDocument, actions: Actions): readonly MenuItem[] {
  const { name, state, goal, origin, transport } = server;
  const verb = (text: string, action: Parameters<Actions["server"]>[1]): MenuItem => ({
    text,
    onSelect: () => actions.server(name, action),
  });
  const isRetriable = state === "failed" || state === "reconnecting";
  const isAttempt =
    state === "connecting" || state === "authenticating" || state === "reconnecting";
  const isStopped = ["notStarted", "idle", "stopped"].includes(state);
  const isRemote = transport !== undefined && transport !== "stdio";
  const fix = fixFor(server);
  return [
    ...(fix === undefined ? [] : [fix]),
    ...(isRetriable ? [verb("Retry", "reconnect")] : []),
    ...(isAttempt ? [verb(isRetriable ? "Stop trying" : "Cancel", "cancel")] : []),
    ...(isStopped ? [verb("Start", "start")] : []),
    ...(isRemote || needsLogin(server) ? [verb("Log in", "login")] : []),
    ...(isRemote && state === "connected" ? [verb("Log out", "logout")] : []),
    ...(state === "connected"
      ? [verb("Refresh", "refresh"), verb("Restart", "reconnect"), verb("Disconnect", "stop")]
      : []),
    {
      text: goal === "down" ? "Enable" : "Disable",
      onSelect: () =>
        void actions.send(
          "PATCH /servers/:name",
          {
            params: { name },
            body: { enabled: goal === "down", ...(origin === "manifest" && { persist: true }) },
          },
          `${name} is ${goal === "down" ? "enabled" : "disabled"}.`,
        ),
    },
  ];
}

/** Removes a server, from the manifest too if it is there. @returns whether it is removed */
export function deleteServer({ name, origin }: ServerDocument, actions: Actions): Promise<boolean> {
  const query = { persist: origin === "manifest" ? true : undefined };
  return actions.send("DELETE /servers/:name", { params: { name }, query }, `${name} is deleted.`);
}
