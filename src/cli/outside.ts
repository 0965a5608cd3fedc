import type { Authorizer } from "../auth/authorizer.ts";
import type { HubParts } from "../hub/parts.ts";
import { resolveRemote, resolveServer, type Schemes } from "../manifest/secrets.ts";
import type { OuterServer, RemoteServer } from "../manifest/schema.ts";
import type { Way, Wayfinder } from "../wire/http/target.ts";
import type { Link } from "../wire/link.ts";
import type { World } from "./command.ts";

/** What gives a hub the servers that are not in this process. */
export type Outside = Pick<HubParts, "identify" | "makeLink" | "authorize">;

/** @param openAuthorizer is asked for one when the first server over HTTP wants it */
export function openOutside(
  { env, cwd }: World,
  openAuthorizer: () => Promise<Authorizer>,
): Outside {
  let opened: Promise<Authorizer> | undefined;
  const authorizer = (): Promise<Authorizer> => (opened ??= openAuthorizer());
  const ways = new Map<string, Way>();
  /** What was found of a server holds as long as it is reached where it was. */
  const wayfinderFor = ({ name, url }: RemoteServer): Wayfinder => {
    const key = JSON.stringify([name, url]);
    return {
      get known() {
        return ways.get(key);
      },
      found: (way) => void ways.set(key, way),
    };
  };
  return {
    identify: (spec, schemes) => identify(spec, schemes).catch(() => undefined),
    makeLink: async (spec, schemes): Promise<Link> => {
      const { name: server, maxMessage } = spec;
      // Whatever starts processes, or goes anywhere, is loaded after the first answer to the client.
      if (spec.kind === "stdio") {
        const resolved = await resolveServer(spec, env, cwd, schemes);
        const { stdioLink } = await import("../wire/stdio.ts");
        return stdioLink({ ...resolved, server, maxMessage, hubEnv: env });
      }
      const resolved = await resolveRemote(spec, env, cwd, schemes);
      const { httpLink } = await import("../wire/http/link.ts");
      const credentials = (await authorizer()).credentialsFor(spec, resolved);
      const { transport } = spec;
      const wayfinder = wayfinderFor(spec);
      return httpLink({ ...resolved, server, transport, maxMessage, credentials, wayfinder, env });
    },
    authorize: async (spec, schemes, challenge, proceeding) => {
      const resolved = await resolveRemote(spec, env, cwd, schemes);
      await (await authorizer()).authorize(spec, resolved, challenge, proceeding);
    },
  };

  async function identify(
    spec: OuterServer,
    schemes: Schemes,
  ): Promise<Awaited<ReturnType<HubParts["identify"]>>> {
    if (spec.kind === "stdio") {
      const resolved = await resolveServer(spec, env, cwd, schemes);
      return { ...resolved, url: undefined, principal: undefined };
    }
    const { url, headers, key } = await resolveRemote(spec, env, cwd, schemes);
    return { command: "", args: [], cwd: undefined, env: headers, url: url.href, principal: key };
  }
}
