/** A text, and what is said of it. */
export type Row = readonly [text: string, ...said: string[]];

/**
 * The rows of a table in a template: a text in each line that is indented by two, and below it, deeper,
 * what is said of it. `⏎` ends a line of the text; a line that begins with `## ` is a heading.
 */
export function parseRows(table: string): readonly Row[] {
  const rows: [string, ...string[]][] = [];
  for (const line of table.split("\n")) {
    if (line.startsWith("    ")) rows.at(-1)?.push(line.trim());
    else if (line !== "" && !line.startsWith("  ## ")) {
      rows.push([line.slice(2).replaceAll("⏎", "\n")]);
    }
  }
  return rows;
}
