/// Returns two connected endpoints of one process, each with its dispatcher of completions, for the examples of the documentation.
/// Part 3 of the tutorial does the same in more words.
#[allow(dead_code)]
fn pair() -> udapl::Result<(udapl::Pz, (udapl::Ep, udapl::Evd), (udapl::Ep, udapl::Evd))> {
    let patience = std::time::Duration::from_secs(60);
    let ia = udapl::Ia::open("softrxe-lo")?;
    let pz = ia.create_pz()?;
    let dto = udapl::Streams::DTO | udapl::Streams::RMR_BIND;
    let (of_client, of_server) = (ia.create_evd(64, dto)?, ia.create_evd(64, dto)?);
    let streams = udapl::Streams::CONNECTION | udapl::Streams::CR;
    let connections = ia.create_evd(8, streams)?;
    let endpoint = |done| {
        let builder = ia.endpoint(&pz).recv_evd(done).request_evd(done);
        builder.connect_evd(&connections).create()
    };
    let (client, server) = (endpoint(&of_client)?, endpoint(&of_server)?);
    let listener = ia.listen(None, &connections)?;
    client.connect(ia.attributes()?.address, listener.conn_qual()).start()?;
    let udapl::Event::Request(request) = connections.wait(patience)? else {
        panic!("no request")
    };
    request.accept(&server, b"")?;
    for _ in [&client, &server] {
        let event = connections.wait(patience)?;
        assert!(matches!(event, udapl::Event::Established { .. }), "{event:?}");
    }
    Ok((pz, (client, of_client), (server, of_server)))
}

/// Returns the two ends of a connection in one process.
#[allow(dead_code)]
async fn connection() -> udapl::Result<(udapl::aio::Connection, udapl::aio::Connection)> {
    let context = udapl::aio::Context::open("softrxe-lo")?;
    let options = udapl::aio::Options::default();
    let mut listener = context.listen(None, options.clone())?;
    let qualifier = listener.conn_qual();
    let attempt = context.connect(context.address(), qualifier, &options);
    let (client, server) = udapl::aio::join(attempt, listener.accept()).await;
    Ok((client?, server?))
}
