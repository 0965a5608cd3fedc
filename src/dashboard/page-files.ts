import { HubError } from "../base/errors.ts";

/**
 * The texts of the page's files by their names, which scripts/page.ts builds from the sources in `page/`: the document, the
 * style, the script that the document loads, and the modules that the script imports, most of them when a view is opened.
 */
export type PageFiles = Readonly<Record<string, string>>;

/** Loads the page. @throws {HubError} notSupported if toolmux runs from its sources and the page was not built */
export async function loadPage(): Promise<PageFiles> {
  try {
    return (await import("../../dist/dashboard/page.mjs")).PAGE;
  } catch (cause) {
    const text = "The page of the dashboard is not built.";
    throw new HubError("notSupported", text, { hint: "Build it: npm run page", cause });
  }
}
