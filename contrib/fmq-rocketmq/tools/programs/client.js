// An ordinary program of RocketMQ's own Node client: node client.js HOST:PORT all|die|heir
const { Producer, SimpleConsumer, FilterExpression } = require('rocketmq-client-nodejs');

const [where, mode] = process.argv.slice(2);
const ME = 'node', T = ME + '-', MILLIS = 20000;
const say = (scenario, seen) => console.log(scenario + '\t' + seen);
const message = (topic, body, more = {}) => ({
  topic, tag: 't', keys: ['k'], properties: new Map([['amount', '70']]), body: Buffer.from(body), ...more,
});

async function take(topic, group, count, wanted = '*') {
  const consumer = new SimpleConsumer({
    endpoints: where, namespace: '', consumerGroup: T + group,
    subscriptions: new Map().set(topic, wanted), awaitDuration: 6000,
  });
  await consumer.startup();
  const found = [], end = Date.now() + MILLIS;
  let more = 1;
  while ((found.length < count || more--) && Date.now() < end) {
    // The server may not know the consumer yet.
    for (const m of await consumer.receive(16).catch(() => [])) {
      found.push(m.body.toString());
      await consumer.ack(m);
    }
  }
  await consumer.shutdown();
  return found.join(',');
}

(async () => {
  let asked;
  const question = new Promise(done => { asked = done; });
  const checker = { async check(m) { asked(m.body.toString()); return 1; } };
  const producer = new Producer({ endpoints: where, namespace: '', topics: [T + 'tx'], maxAttempts: 2, checker });
  await producer.startup();
  if (mode === 'die') {
    await producer.send(message(T + 'tx', 'orphan'), producer.beginTransaction());
    process.kill(process.pid, 'SIGKILL');
    return;
  }
  if (mode === 'heir') {
    say('asked about an orphan after kill -9', await Promise.race([question, new Promise(d => setTimeout(() => d(''), MILLIS))]));
    say('the orphan is delivered', await take(T + 'tx', 'heir', 1));
    process.exit(0);
  }
  for (let n = 0; n < 3; n++) {
    await producer.send(message(T + 'n', 'n' + n, { tag: n ? 'paid' : 'open', properties: new Map([['amount', String(n * 50)]]) }));
  }
  say('send, receive, ack', await take(T + 'n', 'all', 3));
  say('a filter by tag', await take(T + 'n', 'tag', 2, 'paid'));
  say('a filter in SQL92', await take(T + 'n', 'sql', 1, new FilterExpression('amount > 50', 2)));
  for (const body of ['committed', 'rolled back', 'twice']) {
    const tx = producer.beginTransaction();
    await producer.send(message(T + 'tx2', body), tx);
    if (body === 'rolled back') { await tx.rollback(); continue; }
    await tx.commit();
    if (body === 'twice') {
      await tx.commit().then(() => say('the second commit', 'accepted'), e => say('the second commit', e.name));
      await tx.rollback().then(() => say('rollback after commit', 'accepted'), e => say('rollback after commit', e.name));
    }
  }
  say('transactions, one committed twice', await take(T + 'tx2', 'tx', 2));
  await producer.send(message(T + 'd', 'delayed', { deliveryTimestamp: new Date(Date.now() + 2000) }));
  say('a delayed one, and one recalled', await take(T + 'd', 'delay', 1));
  for (let n = 0; n < 4; n++) await producer.send(message(T + 'f', 'f' + n, { messageGroup: 'g' }));
  say('a message group in order', await take(T + 'f', 'fifo', 4));
  process.exit(0);
})().catch(e => { console.error(e); process.exit(1); });
