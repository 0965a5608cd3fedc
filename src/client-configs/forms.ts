import { dirname, resolve } from "node:path";
import { parseTemplate, type TemplatePart } from "../manifest/interpolate.ts";
import type { PlaceholderStyle } from "./client.ts";

/** A value that an editor asks the user for (VS Code's `inputs`). */
export interface EditorInput {
  /** The default value; undefined if there is none, or if the input is a password. */
  readonly fallback: string | undefined;
}

/** The file and server that a text comes from. */
export interface TextSource {
  readonly placeholders: PlaceholderStyle;
  /** The client's file, absolute. */
  readonly file: string;
  /** The server's name in the manifest; secrets are stored under it. */
  readonly server: string;
  readonly inputs: ReadonlyMap<string, EditorInput>;
}

/** A text with the manifest's placeholders. */
export interface TranslatedText {
  readonly text: string;
  /** The secrets that must be set before the text can be used. */
  readonly requiredSecrets: readonly string[];
  /** Why a manifest cannot express the text, as the end of a sentence. */
  readonly error: string | undefined;
}

/** Translates a client's placeholders to the manifest's. */
export function translatePlaceholders(text: string, source: TextSource): TranslatedText {
  const requiredSecrets: string[] = [];
  let error: string | undefined;
  let translated = "";
  for (const part of parseClientText(text, source)) {
    const formatted = formatPart(part, source, requiredSecrets);
    if (formatted === undefined) error ??= unsupportedPartReason(part);
    else translated += formatted;
  }
  return { text: translated, requiredSecrets, error };
}

/** The manifest's placeholder for the hub's working directory. */
export const WORKSPACE_PLACEHOLDER = "${workspaceFolder}";

type ClientTextPart = TemplatePart | { readonly kind: "input"; readonly name: string };

const INPUT_PLACEHOLDER = /\$\{input:([^{}]+)\}/g;
/** `$NAME` without braces. */
const BARE_VARIABLE = /\$([A-Za-z_][A-Za-z0-9_]*)/g;
const BRACE_PLACEHOLDER = /\{(env|file):([^{}]+)\}/g;

function parseClientText(
  text: string,
  { placeholders, file }: TextSource,
): readonly ClientTextPart[] {
  switch (placeholders) {
    case "none":
      return [{ kind: "text", text }];
    case "braces":
      return splitAtMatches(text, BRACE_PLACEHOLDER).map((piece): ClientTextPart => {
        if (typeof piece === "string") return { kind: "text", text: piece };
        const [, form, rest = ""] = piece;
        if (form === "env") return { kind: "env", name: rest, fallback: undefined };
        return { kind: "file", path: rest.startsWith("~") ? rest : resolve(dirname(file), rest) };
      });
    case "dollar":
      return parseTemplate(text.replace(BARE_VARIABLE, "$${$1}"), "foreign");
    case "editor":
      return splitAtMatches(text, INPUT_PLACEHOLDER).flatMap((piece): readonly ClientTextPart[] =>
        typeof piece === "string"
          ? parseTemplate(piece, "foreign")
          : [{ kind: "input", name: piece[1] ?? "" }],
      );
  }
}

function splitAtMatches(text: string, pattern: RegExp): readonly (string | RegExpExecArray)[] {
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
export function escapePlaceholders(text: string): string {
  return text.replaceAll("${", () => "$${");
}

function formatPart(
  part: ClientTextPart,
  source: TextSource,
  requiredSecrets: string[],
): string | undefined {
  switch (part.kind) {
    case "text":
      return escapePlaceholders(part.text);
    case "env":
      return part.fallback === undefined || part.fallback.includes("}")
        ? `\${env:${part.name}}`
        : `\${env:${part.name}:-${part.fallback}}`;
    case "file":
      return `\${file:${part.path}}`;
    case "input": {
      const fallback = source.inputs.get(part.name)?.fallback;
      if (fallback !== undefined) return escapePlaceholders(fallback);
      const name = secretName(source.server, part.name);
      requiredSecrets.push(name);
      return `\${secret:${name}}`;
    }
    case "place":
      // The client's workspace is the folder in which it starts the hub. A relative path would be resolved against the
      // manifest's folder.
      if (part.place === "workspaceFolder") return WORKSPACE_PLACEHOLDER;
      if (part.place === "userHome") return "${env:HOME}";
      return part.place === "pathSeparator" ? "/" : undefined;
    case "scheme":
    case "fault":
      return undefined;
  }
}

function unsupportedPartReason(part: ClientTextPart): string {
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
