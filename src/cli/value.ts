import { Buffer } from "node:buffer";
import { decodeUtf8 } from "../base/read-file.ts";
import {
  describeForms,
  findMismatch,
  type ValueForm,
  type SchemaMismatch,
  formsOfSchema,
} from "./json-schema.ts";

/** A value as it was given for a key. */
export type GivenValue =
  | { readonly kind: "text"; readonly text: string }
  /** Checked to be JSON. */
  | { readonly kind: "json"; readonly text: string }
  | { readonly kind: "file"; readonly bytes: Uint8Array<ArrayBuffer> };

export type WrittenValue = { readonly json: string } | { readonly misfit: SchemaMismatch };

/** The values of one key, as the JSON text that is allowed there. Numbers stay as they were spelled. */
export function formatValues(
  values: readonly GivenValue[],
  forms: readonly ValueForm[],
): WrittenValue {
  const [value, ...others] = values;
  if (value === undefined) return refuse(forms, "nothing");
  const list = forms.find((form) => form.kind === "array");
  if (others.length === 0) {
    const json = writeValue(value, forms);
    // One element of an array need not look like an array.
    if (json !== undefined || list === undefined) return finish(json, value, forms);
    return writeElements(values, list);
  }
  if (list !== undefined) return writeElements(values, list);
  if (forms.some(({ kind }) => kind === "any"))
    return writeElements(values, { kind: "array", items: { schema: true, root: true } });
  return refuse(forms, `${values.length} values`);
}

function writeElements(
  values: readonly GivenValue[],
  list: ValueForm & { kind: "array" },
): WrittenValue {
  const forms = formsOfSchema(list.items);
  const isNested = forms.some(({ kind }) => kind === "array" || kind === "any");
  const elements: string[] = [];
  for (const value of values) {
    const whole = isNested ? undefined : writeValue(value, [list]);
    const json = whole ?? writeValue(value, forms);
    if (json === undefined) return finish(json, value, isList(value) && !isNested ? [list] : forms);
    elements.push(whole === undefined ? json : whole.trim().slice(1, -1));
  }
  return { json: `[${elements.filter((text) => text.trim() !== "").join(",")}]` };
}

function isList(value: GivenValue): boolean {
  return value.kind !== "file" && /^\s*\[/.test(value.text);
}

/** JSON text; undefined if the value is not allowed. */
function writeValue(value: GivenValue, forms: readonly ValueForm[]): string | undefined {
  switch (value.kind) {
    case "json":
      return findMismatch(JSON.parse(value.text), forms) === undefined ? value.text : undefined;
    case "text":
      return writeText(value.text, forms);
    case "file": {
      const encodes = forms.some((form) => form.kind === "string" && form.base64);
      if (encodes) return JSON.stringify(Buffer.from(value.bytes).toString("base64"));
      const text = decodeUtf8(value.bytes);
      return text === undefined ? undefined : writeText(text, forms);
    }
  }
}

/** What a text is tried as, in this order: what fits few texts comes first, or it would never have its turn. */
const ORDER = "null choice boolean integer number array object any string".split(" ");

function writeText(text: string, forms: readonly ValueForm[]): string | undefined {
  const ordered = forms.toSorted((a, b) => ORDER.indexOf(a.kind) - ORDER.indexOf(b.kind));
  for (const form of ordered) {
    const json = writeAs(text, form);
    if (json !== undefined) return json;
  }
  return undefined;
}

function writeAs(text: string, form: ValueForm): string | undefined {
  switch (form.kind) {
    case "string":
      return JSON.stringify(text);
    case "any":
      return parse(text) === undefined ? JSON.stringify(text) : text;
    case "choice": {
      const values = form.values.filter((one) =>
        typeof one === "string" ? one === text : JSON.stringify(one) === text.trim(),
      );
      return values.length === 0 ? undefined : JSON.stringify(values[0]);
    }
    default: {
      const value = parse(text);
      const fits = value !== undefined && findMismatch(value.value, [form]) === undefined;
      return fits ? text.trim() : undefined;
    }
  }
}

function finish(
  json: string | undefined,
  value: GivenValue,
  forms: readonly ValueForm[],
): WrittenValue {
  if (json !== undefined) return { json };
  switch (value.kind) {
    case "json":
      return {
        misfit: findMismatch(JSON.parse(value.text), forms) ?? blame(forms, "something else"),
      };
    case "file":
      return refuse(forms, "the content of that file");
    case "text": {
      // Where a value inside of JSON is wrong, that place is what has to be told.
      const parsed = /^\s*[[{]/.test(value.text) ? parse(value.text) : undefined;
      const misfit = parsed && findMismatch(parsed.value, forms);
      const shown = value.text.length > 40 ? `${value.text.slice(0, 40)}…` : value.text;
      return { misfit: misfit ?? blame(forms, JSON.stringify(shown)) };
    }
  }
}

function refuse(forms: readonly ValueForm[], found: string): WrittenValue {
  return { misfit: blame(forms, found) };
}

function blame(forms: readonly ValueForm[], found: string): SchemaMismatch {
  return { path: "", expected: describeForms(forms), found };
}

/** The value of a JSON text; undefined if it is none. */
function parse(text: string): { readonly value: unknown } | undefined {
  try {
    return { value: JSON.parse(text) as unknown };
  } catch {
    return undefined;
  }
}
