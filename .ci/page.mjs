// Called by .ci/page with the URLs of status pages.
import axe from 'axe-core'
import puppeteer from 'puppeteer-core'

const browser = await puppeteer.launch({ executablePath: process.env.CHROMIUM, args: ['--no-sandbox'] })
let bad = 0
for (const url of process.argv.slice(2)) {
  for (const host of ['', '?host=https://bank-login.example/', '?host=x%20y']) {
    for (const scheme of ['light', 'dark']) {
      for (const width of [960, 360]) {
        const page = await browser.newPage()
        page.on('console', m => { bad++; console.log(`${url}${host}: the console says: ${m.text()}`) })
        page.on('request', r => { if (!r.url().startsWith(url)) { bad++; console.log(`${url}${host}: the page loads ${r.url()}`) } })
        await page.setViewport({ width, height: 1000 })
        await page.emulateMediaFeatures([{ name: 'prefers-color-scheme', value: scheme }])
        await page.goto(url + host)
        const wide = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth)
        if (wide > 0) { bad++; console.log(`${url}${host}: ${wide} pixels wider than ${width}`) }
        await page.evaluate(axe.source)
        const found = await page.evaluate(() => window.axe.run({ resultTypes: ['violations'] }))
        for (const v of found.violations) {
          bad++
          console.log(`${url}${host} ${scheme} ${width}: ${v.id}: ${v.help}: ${v.nodes.map(n => n.html).join(' ')}`)
        }
        await page.close()
      }
    }
  }
}
await browser.close()
if (bad > 0) process.exit(1)
console.log('axe finds nothing, in 24 pages')
