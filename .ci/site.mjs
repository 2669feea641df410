// Called by .ci/site with the files of pages.
import { pathToFileURL } from 'node:url'
import axe from 'axe-core'
import puppeteer from 'puppeteer-core'

// The policy of a page is for a server. A browser takes each file for an origin of its own.
const browser = await puppeteer.launch({ executablePath: process.env.CHROMIUM, args: ['--no-sandbox', '--allow-file-access-from-files'] })
let bad = 0
const say = text => { bad++; console.log(text) }
const files = process.argv.slice(2)
for (const file of files) {
  for (const [scheme, width] of [['light', 1200], ['dark', 1200], ['light', 360]]) {
    const page = await browser.newPage()
    await page.setBypassCSP(true) // for axe, which is a script
    page.on('request', r => { if (!/^(file|about):/.test(r.url())) say(`${file}: the page loads ${r.url()}`) })
    page.on('requestfailed', r => say(`${file}: ${r.url()} is missing`))
    await page.setViewport({ width, height: 1000 })
    await page.emulateMediaFeatures([{ name: 'prefers-color-scheme', value: scheme }])
    await page.goto(pathToFileURL(file))
    const wide = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth)
    if (wide > 0) say(`${file}: ${wide} pixels wider than ${width}`)
    await page.evaluate(axe.source)
    const found = await page.evaluate(() => window.axe.run({ resultTypes: ['violations'] }))
    for (const v of found.violations) {
      say(`${file} ${scheme} ${width}: ${v.id}: ${v.help}: ${v.nodes.slice(0, 3).map(n => n.html).join(' ')}`)
    }
    if (process.env.KEEP && /index|status/.test(file)) await page.screenshot({ path: `${process.env.KEEP}/site-${file.replace(/.*\//, '')}-${scheme}-${width}.png` })
    await page.close()
  }
}
await browser.close()
if (bad > 0) process.exit(1)
console.log(`axe finds nothing, in ${files.length} pages, light, dark and narrow`)
