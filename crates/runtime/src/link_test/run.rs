//! Clock, Port and signals for the ends of a link test.

use super::client::{Client, Failed, Progress};
use super::server::Server;
use super::{EndOptions, Plan, Report, TestOptions};
use crate::options::{SecurityOptions, Via};
use crate::stat::SessionStat;
use crate::station::Station;
use crate::{StartError, identity};

/// How long the goodbye may take.
const GOODBYE_NS: u64 = 200_000_000;

/// Why a link test has no result.
#[derive(Debug, thiserror::Error)]
pub enum TestError {
    /// Our end could not start or go on.
    #[error(transparent)]
    Start(#[from] StartError),
    /// The test itself failed.
    #[error("{peer}: {failed}")]
    Failed {
        /// With whom.
        peer: Via,
        /// Why.
        failed: Failed,
    },
}

/// Serves link tests until SIGTERM or SIGINT.
pub fn serve(options: &EndOptions) -> Result<(), StartError> {
    let mut station = Station::open(&options.run, &options.links, &SecurityOptions::Plaintext)?;
    let config = station.session_config(&options.session, &options.run.name);
    let mut server = Server::new(&config, identity::epoch);
    tracing::info!(address = station.links.address(), frame_bytes = station.links.max_frame_bytes(), "ready");
    while !station.signals.stop() {
        let (now_ns, mut progress) =
            station.receive(&mut |now_ns, from, frame| server.receive(now_ns, from, frame));
        progress |= server.poll(now_ns, &mut |peer, session| {
            let SessionStat { state, gauges, counters, .. } = SessionStat::of(peer, session);
            tracing::info!(%peer, state, %gauges, %counters, "test over");
        });
        let Station { clock, links, .. } = &mut station;
        progress |= server.transmit(clock.now_ns(), &mut |to, frames| links.send(to, frames));
        station.end_round(progress, || server.deadline_ns())?;
    }
    server.close();
    let Station { clock, links, .. } = &mut station;
    server.transmit(clock.now_ns(), &mut |to, frames| links.send(to, frames));
    tracing::info!(counters = %links.counters(), "stopped");
    Ok(())
}

/// Makes one test; `show` hears how far it is, in every round of the loop. SIGINT or SIGTERM end it early.
pub fn test(
    options: &EndOptions,
    test: &TestOptions,
    show: &mut dyn FnMut(&Progress),
) -> Result<Report, TestError> {
    let mut station = Station::open(&options.run, &options.links, &SecurityOptions::Plaintext)?;
    let config = station.session_config(&options.session, &options.run.name);
    let plan = Plan::from(test);
    let peers: Vec<Via> = test.peer.iter().collect();
    let mut client = Client::new(&config, plan, &peers, identity::epoch(), station.clock.now_ns());
    let mut session = None;
    let mut until_ns = u64::MAX;
    while !client.is_silent() && station.clock.now_ns() < until_ns {
        let (now_ns, mut progress) =
            station.receive(&mut |now_ns, from, frame| client.receive(now_ns, from, frame));
        if station.signals.stop() {
            client.stop(now_ns);
        }
        progress |= client.poll(now_ns);
        if client.is_done() {
            // As it was before the goodbye.
            session.get_or_insert_with(|| SessionStat::of(&peers[0], client.session()));
            client.close();
            until_ns = until_ns.min(now_ns + GOODBYE_NS);
        } else {
            show(&client.progress(now_ns));
        }
        let Station { clock, links, .. } = &mut station;
        progress |= client.transmit(clock.now_ns(), &mut |to, frames| links.send(to, frames));
        station.end_round(progress, || client.deadline_ns()).map_err(StartError::from)?;
    }
    let measured = client.measured().map_err(|failed| TestError::Failed { peer: peers[0], failed })?;
    Ok(Report {
        address: station.links.address(),
        record_bytes: plan.record_bytes as u64,
        to_peer: measured.to_peer,
        from_peer: measured.from_peer,
        idle: measured.idle,
        loaded: measured.loaded,
        longest_pause_ns: measured.longest_pause_ns,
        session: session.unwrap_or_else(|| SessionStat::of(&peers[0], client.session())),
        port: station.links.counters(),
    })
}
