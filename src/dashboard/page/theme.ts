/** The colours of the page: those of the system, or those that a person has chosen for this browser. */
export const THEMES = ["system", "light", "dark"] as const;

export type Theme = (typeof THEMES)[number];

const THEME_KEY = "toolmux.theme";
const prefersDark = matchMedia("(prefers-color-scheme: dark)");

/** The theme that was chosen. */
export function chosenTheme(): Theme {
  const stored = localStorage.getItem(THEME_KEY);
  return THEMES.find((theme) => theme === stored) ?? "system";
}

export function chooseTheme(theme: Theme): void {
  if (theme === "system") localStorage.removeItem(THEME_KEY);
  else localStorage.setItem(THEME_KEY, theme);
  applyTheme();
}

/** Sets the attribute by which the style chooses its colours. */
function applyTheme(): void {
  const theme = chosenTheme();
  const isDark = theme === "dark" || (theme === "system" && prefersDark.matches);
  document.documentElement.dataset["theme"] = isDark ? "dark" : "light";
}

/** Applies the chosen theme, and again when the system or another tab changes it. */
export function followTheme(): void {
  applyTheme();
  prefersDark.addEventListener("change", applyTheme);
  window.addEventListener("storage", ({ key }) => {
    if (key === THEME_KEY) applyTheme();
  });
}
