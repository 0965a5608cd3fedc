import { dirname, resolve } from "node:path";
import { parseTemplate, type Part } from "../manifest/interpolate.ts";
import type { Forms } from "./client.ts";

/** A value that an editor asks the user for (VS Code's `inputs`). */
export interface Input {
  /** The default value; undefined if there is none, or if the input is a password. */
  readonly fallback: string | undefined;
}

/** The file and server that a text comes from. */
export interface Origin {
  readonly forms: Forms;
  /** The client's file, absolute. */
  readonly file: string;
  /** The server's name in the manifest; secrets are stored under it. */
  readonly server: string;
  readonly inputs: ReadonlyMap<string, Input>;
}

/** A text with the manifest's placeholders. */
export interface Spelled {
  readonly text: string;
  /** The secrets that must be set before the text can be used. */
  readonly wanted: readonly string[];
  /** Why a manifest cannot express the text, as the end of a sentence. */
  readonly fault: string | undefined;
}

/** Translates a client's placeholders to the manifest's. */
export function respell(text: string, origin: Origin): Spelled {
  const wanted: string[] = [];
  let fault: string | undefined;
  let spelled = "";
  for (const part of readParts(text, origin)) {
    const printed = print(part, origin, wanted);
    if (printed === undefined) fault ??= explain(part);
    else spelled += printed;
  }
  return { text: spelled, wanted, fault };
}

/** The manifest's placeholder for the hub's working directory. */
export const WORKSPACE = "${workspaceFolder}";

type Piece = Part | { readonly kind: "input"; readonly name: string };

const INPUT = /\$\{input:([^{}]+)\}/g;
/** `$NAME` without braces. */
const UNBRACED = /\$([A-Za-z_][A-Za-z0-9_]*)/g;
const BRACES = /\{(env|file):([^{}]+)\}/g;

function readParts(text: string, { forms, file }: Origin): readonly Piece[] {
  switch (forms) {
    case "none":
      return [{ kind: "text", text }];
    case "braces":
      return split(text, BRACES).map((piece): Piece => {
        if (typeof piece === "string") return { kind: "text", text: piece };
        const [, form, rest = ""] = piece;
        if (form === "env") return { kind: "env", name: rest, fallback: undefined };
        return { kind: "file", path: rest.startsWith("~") ? rest : resolve(dirname(file), rest) };
      });
    case "dollar":
      return parseTemplate(text.replace(UNBRACED, "$${$1}"), "foreign");
    case "editor":
      return split(text, INPUT).flatMap((piece): readonly Piece[] =>
        typeof piece === "string"
          ? parseTemplate(piece, "foreign")
          : [{ kind: "input", name: piece[1] ?? "" }],
      );
  }
}

function split(text: string, pattern: RegExp): readonly (string | RegExpExecArray)[] {
  const pieces: (string | RegExpExecArray)[] = [];
  let from = 0;
  for (const match of text.matchAll(pattern)) {
    if (match.index > from) pieces.push(text.slice(from, match.index));
    pieces.push(match);
    from = match.index + match[0].length;
  }
  if (from < text.length) pieces.push(text.slice(from));
  return pieces;
}

/** Escapes a text, so that a manifest takes it literally. */
export function escape(text: string): string {
  return text.replaceAll("${", () => "$${");
}

function print(part: Piece, origin: Origin, wanted: string[]): string | undefined {
  switch (part.kind) {
    case "text":
      return escape(part.text);
    case "env":
      return part.fallback === undefined || part.fallback.includes("}")
        ? `\${env:${part.name}}`
        : `\${env:${part.name}:-${part.fallback}}`;
    case "file":
      return `\${file:${part.path}}`;
    case "input": {
      const fallback = origin.inputs.get(part.name)?.fallback;
      if (fallback !== undefined) return escape(fallback);
      const name = secretName(origin.server, part.name);
      wanted.push(name);
      return `\${secret:${name}}`;
    }
    case "place":
      // The client's workspace is the folder in which it starts the hub. A relative path would be resolved against the
      // manifest's folder.
      if (part.place === "workspaceFolder") return WORKSPACE;
      if (part.place === "userHome") return "${env:HOME}";
      return part.place === "pathSeparator" ? "/" : undefined;
    case "scheme":
    case "fault":
      return undefined;
  }
}

function explain(part: Piece): string {
  if (part.kind === "fault") return `it holds ${part.message}`;
  return part.kind === "place"
    ? `it needs \${${part.place}}, which only an editor knows`
    : "it holds a ${…} of an unknown form";
}

/** The name that a value of a server is stored under in the secret store: `server/name`. */
export function secretName(server: string, name: string): string {
  const [owner, own] = [server, name].map((part) =>
    part.replace(/[^\w.-]+/g, "-").replace(/^-+|-+$/g, ""),
  );
  return `${owner || "server"}/${own || "value"}`;
}
