"""How the page looks: one style sheet, light and dark, from a telephone to a wide screen. No font, no script, no network."""

STYLE = """
:root { color-scheme: light dark; --ink: #1c2024; --soft: #5b6570; --paper: #fdfdfc; --card: #f3f3f0; --line: #d9d9d3;
  --accent: #0b5a83; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e6e6e2; --soft: #a2abb3; --paper: #15181b; --card: #1e2226; --line: #353b41; --accent: #7cc4ec; }
}
* { box-sizing: border-box; }
html { -webkit-text-size-adjust: 100%; scroll-behavior: smooth; }
body { margin: 0 auto; padding: 0 1.25rem 4rem; max-width: 80rem; background: var(--paper); color: var(--ink);
  font: 1rem/1.55 system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", sans-serif; }
header { padding: 2.5rem 0 1rem; }
h1 { font-size: clamp(1.5rem, 4vw, 2.2rem); line-height: 1.2; margin: 0 0 .6rem; text-wrap: balance; }
h2 { font-size: 1.45rem; line-height: 1.25; margin: 3.2rem 0 .8rem; padding-top: .9rem; border-top: 2px solid var(--ink); }
h3 { font-size: 1.05rem; margin: 0 0 .6rem; }
p { margin: 0 0 .9rem; max-width: 46rem; overflow-wrap: anywhere; }
a { color: var(--accent); }
code { font: .9em ui-monospace, "SF Mono", Consolas, monospace; overflow-wrap: anywhere; }
nav { display: flex; flex-wrap: wrap; gap: .35rem 1.2rem; margin: 1.2rem 0 0; }
nav a { text-decoration: none; border-bottom: 1px solid currentColor; }
.pair { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 30rem), 1fr)); gap: 1.2rem; }
.block { margin: 1.4rem 0; padding: 1rem 1.1rem; background: var(--card); border: 1px solid var(--line);
  border-radius: .5rem; min-width: 0; }
.pair .block { margin: 0; }
.plates { display: grid; grid-template-columns: repeat(var(--columns), minmax(0, 1fr)); gap: .7rem; }
.plate { margin: 0; min-width: 0; }
.plate img { display: block; width: 100%; height: auto; border-radius: .2rem; }
.plate img.crisp { image-rendering: pixelated; }
.plate img.plot { image-rendering: auto; max-width: 40rem; margin: 0 auto; }
.plate figcaption { font-size: .82rem; line-height: 1.35; color: var(--soft); margin-top: .25rem; }
.plate audio { display: block; width: 100%; height: 2.2rem; margin-top: .3rem; }
.caption { font-size: .9rem; margin: .8rem 0 0; max-width: 60rem; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-size: .92rem; min-width: 60%; }
th, td { text-align: left; padding: .32rem 1.1rem .32rem 0; border-bottom: 1px solid var(--line); vertical-align: top; }
th { font-weight: 600; border-bottom-color: var(--ink); }
td.number { font-variant-numeric: tabular-nums; white-space: nowrap; }
data { font-variant-numeric: tabular-nums; white-space: nowrap; }
data sup { color: var(--accent); font-size: .68em; margin-left: .1em; font-variant-numeric: normal; }
.sources { list-style: none; margin: .8rem 0 0; padding: .5rem 0 0; border-top: 1px solid var(--line);
  font-size: .76rem; line-height: 1.4; color: var(--soft); }
.sources li { overflow-wrap: anywhere; padding-left: 1.3rem; text-indent: -1.3rem; }
.sources sup { color: var(--accent); margin-right: .3rem; }
@media (max-width: 40rem) {
  body { padding: 0 .8rem 3rem; }
  .block { padding: .8rem .7rem; }
  .plates.many { grid-template-columns: repeat(2, minmax(0, 1fr)); }
  .plates.many .empty { display: none; }
  table { font-size: .8rem; }
  th, td { padding-right: .5rem; }
}
@media print { .block { break-inside: avoid; } }
"""
