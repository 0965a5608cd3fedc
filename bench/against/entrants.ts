import { once } from "node:events";
import { type AddressInfo, createServer } from "node:net";
import process from "node:process";
import { VERSION } from "../../src/base/version.ts";
import type { EchoOptions, Scene, Stage } from "../contestants.ts";
import type { Face } from "./job.ts";
import { sweep } from "./kin.ts";
import { versionOf } from "../machine.ts";
import type { Command } from "../peer.ts";
import type { Installations } from "./install.ts";
import { type Other, OTHERS } from "./others.ts";

/** The two faces that a client may find; each is a race of its own. */
export const TRACKS = ["stdio", "HTTP"] as const;
export type Track = (typeof TRACKS)[number];

/** One who takes part. */
export interface Entrant {
  readonly name: string;
  readonly version: string;
  /** A fresh start, of which nothing runs yet. @throws if it is not there, with the reason. */
  readonly enter: () => Promise<Entry>;
}

/** How one is started and talked to. */
export interface Entry {
  readonly peer: Command;
  readonly face: Face;
  readonly tool: string;
  /** In the environment of all processes that come of it. */
  readonly tag: string;
  /** The file of the server behind it. */
  readonly server: string;
}

const ECHO: EchoOptions = { shape: "head", tools: 1, delay: 0 };
const STDIO: Face = { kind: "stdio" };
const SAID: Face = { kind: "streamable", url: undefined };
const TAG_VARIABLE = "BENCH_RACE";
/** With the number of this process and one of the entry. */
const TAG = `${process.pid}.`;
let entries = 0;

/** All who take part on one track: our own first, then the programs of others. */
export function gather(stage: Stage, installations: Installations, track: Track): Entrant[] {
  const sdk = versionOf("@modelcontextprotocol/server");
  const ours =
    track === "stdio"
      ? [
          own(stage, "direct", "", STDIO, () => stage.relay("direct", ECHO)),
          own(stage, "byte pump", "", STDIO, () => stage.relay("pump", ECHO)),
          own(stage, "toolmux", VERSION, STDIO, () => stage.relay("toolmux", ECHO)),
          own(stage, "SDK relay", sdk, STDIO, () => stage.relay("sdk", ECHO)),
        ]
      : [
          own(stage, "toolmux", VERSION, SAID, () => stage.face("toolmux", ECHO)),
          own(stage, "SDK relay", sdk, SAID, () => stage.face("sdk", ECHO)),
        ];
  return [...ours, ...OTHERS.flatMap((other) => invite(stage, installations, track, other))];
}

/** Ends whatever was started and still runs. */
export function endAll(): void {
  sweep(`${TAG_VARIABLE}=${TAG}`);
}

function own(
  stage: Stage,
  name: string,
  version: string,
  face: Face,
  set: () => Scene | undefined,
): Entrant {
  const enter = async (): Promise<Entry> => {
    const scene = set();
    if (scene === undefined) throw new Error("it has not been built");
    return mark(stage, { ...scene, face });
  };
  return { name, version, enter };
}

function invite(
  stage: Stage,
  installations: Installations,
  track: Track,
  { name, version, source, stdio, http }: Other,
): Entrant[] {
  const start = track === "stdio" ? stdio : http;
  if (start === undefined) return [];
  const enter = async (): Promise<Entry> => {
    const installation = installations[source];
    if (!installation.isThere) throw new Error(installation.why);
    const folder = stage.makeFolder(`entry${entries + 1}`);
    const { folder: installed } = installation;
    const place = { installed, folder, port: await findPort(), server: stage.server(ECHO) };
    const { file, args, face, tool } = start(place);
    const home = { HOME: folder, XDG_STATE_HOME: folder, NODE_ENV: "production" };
    const { env } = stage.program(file, args);
    return mark(stage, { peer: { file, args, env: { ...env, ...home } }, face, tool });
  };
  return [{ name, version, enter }];
}

function mark(stage: Stage, { peer, face, tool }: Pick<Entry, "peer" | "face" | "tool">): Entry {
  const tag = `${TAG}${++entries}.`;
  const env = { ...peer.env, [TAG_VARIABLE]: tag };
  const marked = { peer: { ...peer, env }, face, tool };
  return { ...marked, tag: `${TAG_VARIABLE}=${tag}`, server: stage.programs.echo };
}

async function findPort(): Promise<number> {
  const server = createServer().listen(0, "127.0.0.1");
  await once(server, "listening");
  const { port } = server.address() as AddressInfo;
  server.close();
  await once(server, "close");
  return port;
}
