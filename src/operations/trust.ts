import { resolve } from "node:path";
import { HubError } from "../base/errors.ts";
import { expandHome, stateFolder } from "../base/paths.ts";
import type { ModelSpec } from "../manifest/agents.ts";
import { parseTemplate, type TemplatePart, templatePartsOf } from "../manifest/interpolate.ts";
import { loadManifest } from "../manifest/load.ts";
import { isExternal, type Manifest, type ServerSpec } from "../manifest/manifest.ts";
import { manifestError } from "../manifest/problems.ts";
import { trust } from "../manifest/trust.ts";
import { type TrustedAgent, trustAgent } from "./agent-library.ts";
import type { ManifestChoice, OperationContext } from "./context.ts";
import { withManifestLock } from "./manifest-file.ts";
import { refuseSuspiciousListings } from "./scan.ts";

/** A manifest that the user has just trusted, and what that allows. */
export interface TrustedManifest {
  readonly kind: "manifest";
  /** The real path. */
  readonly file: string;
  readonly manifest: Manifest;
  /** The commands of `${cmd:…}`, unmasked: the user must see them in full. */
  readonly commands: readonly string[];
  /** The models that get the conversations of agents. */
  readonly models: readonly ModelSpec[];
}

/**
 * Trusts a file with its current content, or an agent of a registry. A file with problems is not trusted.
 * @param word a path, or the name of an agent
 * @param isForced whether it is trusted although its servers listed suspicious text in earlier runs
 * @throws {HubError} manifestInvalid, and what `trustAgent` and `withManifestLock` throw
 */
export async function trustFileOrAgent(
  word: string,
  choice: ManifestChoice,
  context: OperationContext,
  isForced = false,
): Promise<TrustedManifest | { readonly kind: "agent"; readonly agent: TrustedAgent }> {
  const agent = await trustAgent(word, choice, context);
  if (agent !== undefined) return { kind: "agent", agent };
  const { real, manifest } = await trustFileContent(
    resolve(context.cwd, expandHome(word, context.env)),
    context,
    isForced ? undefined : (loaded) => refuseSuspiciousListings(loaded, context),
  );
  const models = [...(manifest.models?.values() ?? [])].flatMap((model) =>
    "problems" in model ? [] : [model],
  );
  const commands = [
    ...new Set([
      ...manifest.servers.flatMap(listCommands),
      ...models
        .flatMap(({ url = "", apiKey = "" }) => [url, apiKey])
        .flatMap((text) => commandsOf(parseTemplate(text, "toolmux"))),
    ]),
  ];
  return { kind: "manifest", file: real, manifest, commands, models };
}

/**
 * Trusts exactly the bytes that the returned manifest was parsed from. Holds the lock for manifests, so that no other
 * toolmux process changes the file between reading it and storing its hash.
 * @param path absolute
 * @param examine rejects if the manifest is not to be trusted
 * @returns the real path, and the parsed manifest
 * @throws {HubError} manifestInvalid, and what `withManifestLock` throws
 */
export function trustFileContent(
  path: string,
  context: OperationContext,
  examine?: (manifest: Manifest) => Promise<void>,
): Promise<{ readonly real: string; readonly manifest: Manifest }> {
  const { cwd, platform } = context;
  const env = { ...context.env, TOOLMUX_SERVERS: undefined };
  return withManifestLock(context, async () => {
    const loaded = await loadManifest({ files: [path], env, cwd, platform });
    if (!loaded.ok || loaded.problems.length > 0) throw manifestError(loaded.problems);
    const [found] = loaded.files;
    if (found === undefined) throw new HubError("internal", `${path} was not read.`);
    await examine?.(loaded.manifest);
    const real = await trust(path, found.bytes, stateFolder(env, platform));
    const { pinFile } = loaded;
    if (pinFile?.bytes !== undefined)
      await trust(pinFile.path, pinFile.bytes, stateFolder(env, platform));
    return { real, manifest: loaded.manifest };
  });
}

/** The commands of a server's `${cmd:…}`, unmasked: the user must see them in full before trusting them. */
function listCommands(spec: ServerSpec): readonly string[] {
  if (!isExternal(spec)) return [];
  return commandsOf(templatePartsOf(spec));
}

function commandsOf(parts: readonly TemplatePart[]): readonly string[] {
  return parts.flatMap((part) =>
    part.kind === "scheme" && part.scheme === "cmd" ? [part.path] : [],
  );
}
